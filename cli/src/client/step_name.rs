//! Steps by id or by name: wherever a command takes an id, it takes the name of a step too, if only one has it.

use sluice_common::api::{ServiceView, StepFilter, StepView};
use sluice_common::step_names::in_list;

use super::{ApiError, Client};

/// Most ids that the error for a name of several steps lists.
const MAX_LISTED: usize = 10;

impl Client {
    /// Makes a call with the id of a step; if there is no such id, with the id of the only step of that name.
    ///
    /// # Errors
    /// That of the call, or that several steps have the name.
    pub(crate) fn for_step<T>(
        &self,
        text: &str,
        mut call: impl FnMut(&str) -> Result<T, ApiError>,
    ) -> Result<T, ApiError> {
        let error = match call(text) {
            Err(error) if error.may_be_name() => error,
            done => return done,
        };
        match self.step_of_name(text)? {
            Some(step) => call(&step.id),
            None => Err(error),
        }
    }

    /// Makes a call with the step or the service of a text: `step/ID`, `service/NAME`, or the first that there is of a step
    /// with this id, a service and a step with this name. The replicas of a service have its name.
    ///
    /// # Errors
    /// That of the call with the text as an id, or as [`Self::for_step`].
    pub(crate) fn for_step_or_service<T>(
        &self,
        text: &str,
        mut of_step: impl FnMut(&str) -> Result<T, ApiError>,
        of_service: impl FnOnce(ServiceView) -> Result<T, ApiError>,
    ) -> Result<T, ApiError> {
        let after = |kinds: &[&str]| kinds.iter().find_map(|kind| text.strip_prefix(kind));
        if let Some(name) = after(&["service/", "services/", "svc/"]) {
            return of_service(self.service(name)?);
        }
        if let Some(id) = after(&["step/", "steps/"]) {
            return self.for_step(id, of_step);
        }
        let error = match of_step(text) {
            Err(error) if error.may_be_name() => error,
            done => return done,
        };
        match self.service(text) {
            Ok(service) => return of_service(service),
            Err(error) if error.is_passing() => return Err(error),
            Err(_) => {}
        }
        match self.step_of_name(text)? {
            Some(step) => of_step(&step.id),
            None => Err(error),
        }
    }

    /// Returns the step of an id, or the only one of a name.
    pub(crate) fn step_called(&self, text: &str) -> Result<StepView, ApiError> {
        self.for_step(text, |id| self.step(id))
    }

    /// Returns the only live step of this name; without a live one, the only one that has ended.
    fn step_of_name(&self, name: &str) -> Result<Option<StepView>, ApiError> {
        let pattern = in_list(name);
        let live = StepFilter {
            name: Some(pattern),
            since: Some("0s".to_owned()),
            ..StepFilter::default()
        };
        let any = StepFilter {
            since: None,
            ..live.clone()
        };
        for (filter, which) in [(live, "live steps"), (any, "steps that have ended")] {
            let mut found = self.first_steps(&filter, MAX_LISTED + 1)?;
            found.retain(|step| step.name == name);
            match found.len() {
                0 => {}
                1 => return Ok(found.pop()),
                count => return Err(ambiguous(name, which, &found, count > MAX_LISTED)),
            }
        }
        Ok(None)
    }
}

fn ambiguous(name: &str, which: &'static str, found: &[StepView], more: bool) -> ApiError {
    let ids = found.iter().take(MAX_LISTED).map(|step| step.id.as_str());
    let mut ids: Vec<&str> = ids.collect();
    if more {
        ids.push("...");
    }
    ApiError::Ambiguous {
        name: name.to_owned(),
        which,
        ids: ids.join(", "),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::render::step::tests::running;

    #[test]
    fn a_name_of_several_steps_is_answered_with_their_ids() {
        let named = |n: usize| StepView {
            id: format!("s{n}"),
            ..running()
        };
        let two: Vec<StepView> = (0..2).map(named).collect();
        assert_eq!(
            ambiguous("train", "live steps", &two, false).to_string(),
            "several live steps are called `train`: s0, s1; write the id of one"
        );
        let many: Vec<StepView> = (0..11).map(named).collect();
        let text = ambiguous("train", "live steps", &many, true).to_string();
        assert!(text.contains("s8, s9, ...; write"), "{text}");
    }
}
