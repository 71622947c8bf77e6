//! Validates the labels of a step. Labels serve filters and validation rules; Sluice itself does not act on them.

use alloc::collections::BTreeMap;
use alloc::format;
use alloc::string::String;

use super::FieldError;
use crate::error_code::ErrorCode;
use crate::label::{LabelError, LabelKey, LabelValue};
use crate::limit::MAX_STEP_LABELS;

/// Prefix of label keys that Sluice reserves.
const OWN_PREFIX: &str = "sluice/";

/// Checks the labels of a request.
///
/// # Errors
/// If there are too many, or one is malformed or has a reserved key.
pub(super) fn checked(
    written: BTreeMap<String, String>,
) -> Result<BTreeMap<LabelKey, LabelValue>, FieldError> {
    let count = written.len();
    if count > MAX_STEP_LABELS {
        let message = format!("{count} labels: the maximum is {MAX_STEP_LABELS}");
        return Err(FieldError::new(ErrorCode::InvalidLabel, "labels", message));
    }
    written.into_iter().map(label).collect()
}

fn label((key, value): (String, String)) -> Result<(LabelKey, LabelValue), FieldError> {
    let field = format!("labels.{}", key.escape_default());
    if key.starts_with(OWN_PREFIX) {
        let message = "keys that begin with `sluice/` are Sluice's own: choose another, such as `example.com/team`";
        return Err(FieldError::new(ErrorCode::InvalidLabel, field, message));
    }
    let wrong = |e: LabelError| FieldError::new(ErrorCode::InvalidLabel, field.as_str(), e);
    let value = LabelValue::new(value).map_err(wrong)?;
    Ok((LabelKey::new(key).map_err(wrong)?, value))
}

#[cfg(test)]
mod tests {
    use super::super::StepRequest;
    use super::*;
    use alloc::string::ToString;

    fn check(labels: &str) -> Result<BTreeMap<LabelKey, LabelValue>, FieldError> {
        let json = format!(r#"{{"command":["a"],"labels":{labels}}}"#);
        let request: StepRequest = serde_json::from_str(&json).unwrap();
        request.check().map(|spec| spec.labels)
    }

    #[test]
    fn labels_are_taken_as_they_are_written() {
        let labels = check(r#"{"team":"vision","example.com/run":""}"#).unwrap();
        let labels: alloc::vec::Vec<String> = labels
            .iter()
            .map(|(key, value)| format!("{key}={value}"))
            .collect();
        assert_eq!(labels, ["example.com/run=", "team=vision"]);
    }

    #[test]
    fn what_is_no_label_is_named() {
        for (labels, field, words) in [
            (r#"{"a b":"c"}"#, "labels.a b", "` ` may not stand in it"),
            (r#"{"a":"b c"}"#, "labels.a", "label value `b c`"),
            (
                r#"{"sluice/pool":"x"}"#,
                "labels.sluice/pool",
                "Sluice's own",
            ),
        ] {
            let error = check(labels).unwrap_err();
            assert_eq!(
                (error.code, error.field.as_str()),
                (ErrorCode::InvalidLabel, field)
            );
            assert!(error.message.contains(words), "{error}");
        }
        let many: BTreeMap<String, String> = (0..65)
            .map(|n| (format!("k{n}"), "v".to_string()))
            .collect();
        let error = check(&serde_json::to_string(&many).unwrap()).unwrap_err();
        assert_eq!(error.to_string(), "labels: 65 labels: the maximum is 64");
    }
}
