// SPDX-FileCopyrightText: The fastpath developers
// SPDX-License-Identifier: MIT OR Apache-2.0

//! Places in the program that allocated or freed, with how often.

use super::track::Track;
use core::fmt;

/// Places that are told apart; further ones are counted together. Each costs 150 bytes of stack while they are counted.
const PLACES: usize = 32;

#[derive(Clone, Copy, Debug, Default)]
struct Place {
    track: Track,
    count: usize,
    waste: usize,
    pids: (usize, usize),
    whens: (usize, usize),
}

/// The places of one kind of a cache.
#[doc(alias = "loc_track")]
#[derive(Clone, Debug)]
pub(crate) struct Calls {
    places: [Place; PLACES],
    used: usize,
    /// Calls from places that found no room.
    others: usize,
}

impl Calls {
    pub(crate) fn new() -> Self {
        Self { places: [Place::default(); PLACES], used: 0, others: 0 }
    }

    /// Counts one object; `waste` bytes of it were not asked for.
    pub(crate) fn add(&mut self, track: &Track, waste: usize) {
        let known = self.places.iter_mut().take(self.used).find(|place| place.track.frames == track.frames);
        if let Some(place) = known {
            place.count += 1;
            place.waste += waste;
            place.pids = (place.pids.0.min(track.pid), place.pids.1.max(track.pid));
            place.whens = (place.whens.0.min(track.when), place.whens.1.max(track.when));
        } else if let Some(place) = self.places.get_mut(self.used) {
            let (pids, whens) = ((track.pid, track.pid), (track.when, track.when));
            *place = Place { track: *track, count: 1, waste, pids, whens };
            self.used += 1;
        } else {
            self.others += 1;
        }
    }
}

impl fmt::Display for Calls {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut places = self.places;
        places.sort_unstable_by_key(|place| core::cmp::Reverse(place.count));
        for place in places.iter().take(self.used) {
            let frame = place.track.frames.first().copied().unwrap_or(0);
            write!(f, "{:>7} {frame:#x}", place.count)?;
            if place.waste != 0 {
                write!(f, " waste={}/{}", place.waste, place.waste / place.count)?;
            }
            writeln!(f, " when={}/{} pid={}-{}", place.whens.0, place.whens.1, place.pids.0, place.pids.1)?;
            for frame in place.track.frames.iter().skip(1).take_while(|frame| **frame != 0) {
                writeln!(f, "        {frame:#x}")?;
            }
        }
        if self.others != 0 {
            writeln!(f, "{:>7} others", self.others)?;
        }
        if self.used == 0 {
            f.write_str("No data\n")?;
        }
        Ok(())
    }
}
