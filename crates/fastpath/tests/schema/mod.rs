// SPDX-FileCopyrightText: The fastpath developers
// SPDX-License-Identifier: MIT OR Apache-2.0

//! A strict check of a document against a JSON schema. Strict: a property that the schema does not name is an error
//! here, so that the schema cannot fall behind; and a keyword that this check does not know is an error too, so that it
//! cannot pass by ignorance. `ci/lanes/70-bench-quick.sh` repeats the check with an independent validator.

use serde_json::Value;

/// Panics at the first place where `document` and `schema` disagree.
pub(crate) fn check(schema: &Value, document: &Value) {
    against(schema, schema, document, "");
}

fn against(root: &Value, schema: &Value, value: &Value, at: &str) {
    for (keyword, wanted) in schema.as_object().unwrap() {
        match keyword.as_str() {
            "$schema" | "$id" | "title" | "description" | "$defs" => {}
            "$ref" => {
                let name = wanted.as_str().unwrap().strip_prefix("#/$defs/").unwrap();
                assert!(root["$defs"].get(name).is_some(), "{at}: no definition {name}");
                against(root, &root["$defs"][name], value, at);
            }
            "const" => assert_eq!(value, wanted, "{at}"),
            "enum" => {
                assert!(wanted.as_array().unwrap().contains(value), "{at}: {value} is none of {wanted}");
            }
            "type" => {
                let fits = match wanted.as_str().unwrap() {
                    "object" => value.is_object(),
                    "array" => value.is_array(),
                    "string" => value.is_string(),
                    "boolean" => value.is_boolean(),
                    "number" => value.is_number(),
                    "integer" => value.is_u64() || value.is_i64(),
                    other => panic!("{at}: unknown type {other}"),
                };
                assert!(fits, "{at}: {value} is no {wanted}");
            }
            "required" => {
                for name in wanted.as_array().unwrap() {
                    assert!(value.get(name.as_str().unwrap()).is_some(), "{at}: {name} is missing");
                }
            }
            "properties" => {
                for (name, inner) in value.as_object().unwrap() {
                    let described =
                        wanted.get(name).unwrap_or_else(|| panic!("{at}: {name} is not described"));
                    against(root, described, inner, &format!("{at}/{name}"));
                }
            }
            "items" => {
                for (index, inner) in value.as_array().unwrap().iter().enumerate() {
                    against(root, wanted, inner, &format!("{at}/{index}"));
                }
            }
            "minimum" => {
                assert!(value.as_f64().unwrap() >= wanted.as_f64().unwrap(), "{at}: {value} < {wanted}");
            }
            "minLength" => assert!(value.as_str().unwrap().len() as u64 >= wanted.as_u64().unwrap(), "{at}"),
            "pattern" => {
                // The one pattern in use: a date of digits and fixed marks.
                assert_eq!(wanted, "^[0-9]{4}-[0-9]{2}-[0-9]{2}T[0-9]{2}:[0-9]{2}:[0-9]{2}Z$", "{at}");
                let shape: String = value
                    .as_str()
                    .unwrap()
                    .chars()
                    .map(|c| if c.is_ascii_digit() { '0' } else { c })
                    .collect();
                assert_eq!(shape, "0000-00-00T00:00:00Z", "{at}");
            }
            other => panic!("{at}: this check does not know {other}"),
        }
    }
}
