// SPDX-FileCopyrightText: The fastpath developers
// SPDX-License-Identifier: MIT OR Apache-2.0

//! Reads a profile in pprof's format: gzip around the messages of `profile.proto`.

use std::collections::HashMap;
use std::io::Read as _;

/// One mapping of a file with code.
#[derive(Debug, Default, Clone)]
pub(crate) struct Mapping {
    pub(crate) start: u64,
    pub(crate) offset: u64,
    file: u64,
}

/// One stack and its figures.
#[derive(Debug, Default, Clone)]
pub(crate) struct Sample {
    /// Ids of locations, innermost first.
    pub(crate) locations: Vec<u64>,
    /// One figure per type.
    pub(crate) values: Vec<u64>,
}

/// A profile.
#[derive(Debug, Default)]
pub(crate) struct Profile {
    types: Vec<u64>,
    pub(crate) samples: Vec<Sample>,
    pub(crate) mappings: HashMap<u64, Mapping>,
    /// Address by id.
    pub(crate) locations: HashMap<u64, (u64, u64)>,
    strings: Vec<String>,
    /// Average bytes between two samples.
    pub(crate) period: u64,
}

/// A field of a message.
enum Field<'a> {
    Number(u64),
    Bytes(&'a [u8]),
}

fn varint(bytes: &mut &[u8]) -> Option<u64> {
    let mut value = 0u64;
    for shift in (0..64).step_by(7) {
        let (&byte, rest) = bytes.split_first()?;
        *bytes = rest;
        value |= u64::from(byte & 0x7f) << shift;
        if byte < 0x80 {
            return Some(value);
        }
    }
    None
}

/// Calls `each` with every field of a message; `None` if it is cut short or of another kind.
fn fields(mut bytes: &[u8], mut each: impl FnMut(u64, Field<'_>) -> Option<()>) -> Option<()> {
    while !bytes.is_empty() {
        let key = varint(&mut bytes)?;
        let field = match key & 7 {
            0 => Field::Number(varint(&mut bytes)?),
            kind @ (1 | 2 | 5) => {
                let length = match kind {
                    1 => 8,
                    5 => 4,
                    _ => usize::try_from(varint(&mut bytes)?).ok()?,
                };
                let (content, rest) = bytes.split_at_checked(length)?;
                bytes = rest;
                Field::Bytes(content)
            }
            _ => return None,
        };
        each(key >> 3, field)?;
    }
    Some(())
}

/// A repeated number, packed or not.
fn numbers(out: &mut Vec<u64>, field: &Field<'_>) -> Option<()> {
    match field {
        Field::Number(value) => out.push(*value),
        Field::Bytes(packed) => {
            let mut bytes = *packed;
            while !bytes.is_empty() {
                out.push(varint(&mut bytes)?);
            }
        }
    }
    Some(())
}

impl Profile {
    /// Reads a file's bytes.
    ///
    /// # Errors
    /// A text that says what is wrong with them.
    pub(crate) fn read(bytes: &[u8]) -> Result<Self, String> {
        let mut plain = Vec::new();
        if bytes.starts_with(&[0x1f, 0x8b]) {
            flate2::read::GzDecoder::new(bytes)
                .read_to_end(&mut plain)
                .map_err(|error| format!("not a whole gzip file: {error}"))?;
        } else {
            plain.extend_from_slice(bytes);
        }
        let mut profile = Self::default();
        let whole = fields(&plain, |number, field| profile.field(number, &field));
        if whole.is_none() || profile.types.is_empty() || profile.strings.is_empty() {
            return Err("not a profile in pprof's format".to_owned());
        }
        Ok(profile)
    }

    fn field(&mut self, number: u64, field: &Field<'_>) -> Option<()> {
        match (number, field) {
            (1, Field::Bytes(bytes)) => {
                let mut kind = 0;
                fields(bytes, |number, field| {
                    if let (1, Field::Number(value)) = (number, field) {
                        kind = value;
                    }
                    Some(())
                })?;
                self.types.push(kind);
            }
            (2, Field::Bytes(bytes)) => {
                let mut sample = Sample::default();
                fields(bytes, |number, field| match number {
                    1 => numbers(&mut sample.locations, &field),
                    2 => numbers(&mut sample.values, &field),
                    _ => Some(()),
                })?;
                self.samples.push(sample);
            }
            (3 | 4, Field::Bytes(bytes)) => {
                let mut values = [0; 6];
                fields(bytes, |number, field| {
                    if let (number @ 1..=5, Field::Number(value)) = (number, field) {
                        values[number as usize] = value;
                    }
                    Some(())
                })?;
                let [_, id, two, three, four, file] = values;
                if number == 3 {
                    self.mappings.insert(id, Mapping { start: two, offset: four, file });
                } else {
                    self.locations.insert(id, (two, three));
                }
            }
            (6, Field::Bytes(bytes)) => self.strings.push(String::from_utf8_lossy(bytes).into_owned()),
            (12, Field::Number(value)) => self.period = *value,
            _ => {}
        }
        Some(())
    }

    /// A mapping's file.
    pub(crate) fn file(&self, mapping: &Mapping) -> &str {
        self.strings.get(mapping.file as usize).map_or("", String::as_str)
    }

    /// Which figure of a sample is called `name`.
    pub(crate) fn figure(&self, name: &str) -> Option<usize> {
        self.types.iter().position(|&kind| self.strings.get(kind as usize).is_some_and(|text| text == name))
    }
}

#[cfg(test)]
mod tests {
    use super::Profile;

    #[test]
    fn anything_else_is_refused() {
        for wrong in [&b""[..], b"heap profile: 1: 2", &[0x1f, 0x8b, 8, 0], &[0x0a, 200]] {
            assert!(Profile::read(wrong).is_err(), "{wrong:?}");
        }
    }
}
