//! Calls for the inputs of steps.

use std::fs::File;

use sluice_common::api::InputView;
use sluice_common::error_code::ErrorCode;
use sluice_common::inputs::InputHash;

use super::{ANSWER_LIMIT, ApiError, Client, Query};

impl Client {
    /// Calls `GET /v1/inputs/{sha256}`: returns whether this caller has uploaded the file, which is then kept for an hour.
    pub(crate) fn has_input(&self, sha256: &InputHash) -> Result<bool, ApiError> {
        let found: Result<InputView, _> = self.get(&path(sha256), &Query::new());
        match found {
            Ok(_) => Ok(true),
            Err(error) if error.code() == Some(ErrorCode::UnknownInput.as_str()) => Ok(false),
            Err(error) => Err(error),
        }
    }

    /// Calls `PUT /v1/inputs/{sha256}` with the contents of a file.
    pub(crate) fn put_input(&self, sha256: &InputHash, file: File) -> Result<(), ApiError> {
        let request = self.agent.put(self.url(&path(sha256), &Query::new()));
        let request = self
            .authorized(request)
            .content_type("application/octet-stream");
        let request = request
            .config()
            .timeout_recv_body(Some(ANSWER_LIMIT))
            .build();
        let _stored: InputView = self.parse(self.checked(request.send(file))?)?;
        Ok(())
    }
}

fn path(sha256: &InputHash) -> String {
    format!("/v1/inputs/{sha256}")
}
