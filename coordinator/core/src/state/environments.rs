//! Restores the values of variables into a state that was read from a snapshot and a log, which hold none.

use alloc::collections::BTreeMap;
use alloc::string::{String, ToString};
use alloc::sync::Arc;
use alloc::vec::Vec;

use sluice_common::environment::Environment;
use sluice_common::id::StepId;

use super::State;
use crate::model::service::environment_key;

impl State {
    /// Restores the values of variables, which are stored apart from the specs.
    ///
    /// The first key without variables in the store, or with others.
    ///
    /// # Errors
    /// An error of the store.
    pub fn give_environments<E>(
        &mut self,
        mut environment_of: impl FnMut(&str) -> Result<Option<Environment>, E>,
    ) -> Result<Option<String>, E> {
        // The variables of a part are those of its array.
        let mut by_array: BTreeMap<StepId, Environment> = BTreeMap::new();
        let (own, parts): (Vec<_>, Vec<_>) = (self.stored.steps.values_mut())
            .filter(|step| !step.spec.env.is_empty())
            .partition(|step| step.part_of.is_none());
        for step in own.into_iter().chain(parts) {
            let before = step.spec.weight();
            let array = step.part_of.as_ref().map(|part| &part.array);
            let values = match array.and_then(|array| by_array.get(array)) {
                Some(values) => Some(values.clone()),
                None => environment_of(step.id.as_str())?,
            };
            if let Some(values) = values.as_ref().filter(|_| step.array.is_some()) {
                by_array.insert(step.id.clone(), values.clone());
            }
            match values {
                Some(values) if values.keys().eq(step.spec.env.keys()) => {
                    Arc::make_mut(&mut step.spec).env = values;
                    self.index.update_weight(step, before);
                }
                // An array may be forgotten before a part that still holds resources, which starts no more.
                None if array.is_some() && step.state.is_terminal() => {}
                Some(_) | None => return Ok(Some(step.id.to_string())),
            }
        }
        self.give_service_environments(environment_of)
    }

    fn give_service_environments<E>(
        &mut self,
        mut environment_of: impl FnMut(&str) -> Result<Option<Environment>, E>,
    ) -> Result<Option<String>, E> {
        for (name, service) in &mut self.stored.services {
            let revisions = service.revisions.iter_mut();
            for (number, revision) in revisions.filter(|(_, it)| !it.spec.env.is_empty()) {
                let key = environment_key(name, *number);
                match environment_of(&key)? {
                    Some(values) if values.keys().eq(revision.spec.env.keys()) => {
                        revision.spec.env = values;
                    }
                    Some(_) | None => return Ok(Some(key)),
                }
            }
        }
        Ok(None)
    }
}
