//! Renders views as JSON and YAML with the field names of the HTTP API. Control characters are escaped within both
//! formats, so programs read the same text and a terminal is safe.

use serde::Serialize;

use super::is_harmful;

/// Why a view cannot be serialised, which never happens to our types.
#[derive(Debug, thiserror::Error)]
pub(crate) enum DataError {
    #[error("cannot write it as JSON: {0}")]
    Json(#[from] serde_json::Error),
    #[error("cannot write it as YAML: {0}")]
    Yaml(#[from] serde_saphyr::SerializeError),
}

/// Renders JSON over several lines.
pub(crate) fn json(value: &impl Serialize) -> Result<String, DataError> {
    Ok(escaped(&serde_json::to_string_pretty(value)?))
}

/// Renders JSON on one line.
pub(crate) fn json_line(value: &impl Serialize) -> Result<String, DataError> {
    Ok(escaped(&serde_json::to_string(value)?))
}

/// Renders YAML. The serialiser escapes control characters; for the few other harmful ones it falls back to JSON, which
/// every YAML parser reads.
pub(crate) fn yaml(value: &impl Serialize) -> Result<String, DataError> {
    let options = serde_saphyr::ser_options! { prefer_block_scalars: false };
    let text = serde_saphyr::to_string_with_options(value, options)?;
    if text.chars().any(|c| c != '\n' && is_harmful(c)) {
        return json(value);
    }
    Ok(text)
}

/// Harmful characters occur only within strings, where an escape means the same.
fn escaped(json: &str) -> String {
    let mut out = String::with_capacity(json.len());
    for c in json.chars() {
        if c != '\n' && is_harmful(c) {
            let mut units = [0; 2];
            for unit in c.encode_utf16(&mut units) {
                out.push_str(&format!("\\u{unit:04x}"));
            }
        } else {
            out.push(c);
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use serde_json::{Value, json};

    fn back(text: &str) -> Value {
        serde_saphyr::from_str(text).unwrap()
    }

    #[test]
    fn every_text_comes_back_and_no_terminal_obeys_it() {
        let value = json!({"a\u{9b}1m": "x\u{1b}[2J\ny", "b": "q\u{202e}z", "c": "yes", "d": ["1", 1, 1.5, null]});
        for text in [json(&value).unwrap(), json_line(&value).unwrap()] {
            assert_eq!(serde_json::from_str::<Value>(&text).unwrap(), value);
            assert!(!text.chars().any(|c| c != '\n' && is_harmful(c)), "{text}");
        }
        assert!(!json_line(&value).unwrap().contains('\n'));
        let text = yaml(&value).unwrap();
        assert!(!text.chars().any(|c| c != '\n' && is_harmful(c)), "{text}");
        assert_eq!(back(&text), value);
    }

    proptest! {
        #[test]
        fn yaml_says_what_json_says(key in "\\PC{0,12}|[\\x00-\\x1f\\x7f-\\u{9f}\\u{202e}a]{0,5}", text in any::<String>(), number in any::<i64>()) {
            let value = json!({"key": key, "items": [{"text": text, "n": number}, []], "none": null});
            prop_assert_eq!(back(&yaml(&value).unwrap()), value.clone());
            prop_assert_eq!(serde_json::from_str::<Value>(&json(&value).unwrap()).unwrap(), value);
        }
    }
}
