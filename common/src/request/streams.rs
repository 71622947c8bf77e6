//! Standard input, files of output, and terminal of a step.

use super::{FieldError, StepRequest};
use crate::streams::{PathFacts, StepStreams, StreamsRequest};

impl StepRequest {
    pub(super) fn checked_streams(&self) -> Result<StepStreams, FieldError> {
        let request = StreamsRequest {
            stdin: self.stdin.clone(),
            stdout: self.stdout.clone(),
            stderr: self.stderr.clone(),
            append: self.append.unwrap_or(false),
            terminal: self.terminal.unwrap_or(false),
        };
        let facts = PathFacts {
            is_array: self.array.is_some(),
            nodes: self.nodes.unwrap_or(1),
            has_workdir: self.workdir.is_some() || self.prefer_workdir.is_some(),
        };
        StepStreams::checked(request, facts)
    }
}
