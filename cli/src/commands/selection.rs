//! Turns arguments that select steps into filters of the API.

use sluice_common::api::StepFilter;
use sluice_common::selector::Selector;
use sluice_common::step_names::{in_list, is_pattern};

use crate::args::StepSelector;
use crate::client::Client;
use crate::failure::Failure;

impl StepSelector {
    /// Whether it lists steps by id or name, without a pattern or a filter.
    pub(crate) fn is_list(&self) -> bool {
        !self.filters.are_set() && !self.steps.iter().any(|text| is_pattern(text))
    }

    /// Returns the filters of the API. With several, a step is selected if it matches all.
    pub(crate) fn filter(&self, client: &Client) -> Result<StepFilter, Failure> {
        let names: Vec<String> = self.steps.iter().map(|name| in_list(name)).collect();
        let filters = &self.filters;
        let states: Vec<&str> = filters.state.iter().map(|it| it.as_str()).collect();
        let mut filter = StepFilter {
            name: Some(names.join(",")).filter(|names| !names.is_empty()),
            state: Some(states.join(",")).filter(|states| !states.is_empty()),
            subject: filters.subject.clone(),
            pool: filters.pool.clone(),
            labels: filters.selector.as_ref().map(Selector::to_string),
            ..StepFilter::default()
        };
        if filters.mine {
            add_mine(client, &mut filter)?;
        }
        Ok(filter)
    }
}

/// Selects the caller's own steps: by user, or else by the subject for which the caller submits.
///
/// # Errors
/// The cluster does not say who the caller is.
pub(crate) fn add_mine(client: &Client, filter: &mut StepFilter) -> Result<(), Failure> {
    let me = client.whoami()?;
    if me.user.is_some() {
        filter.submitted_by = me.user;
    } else if filter.subject.is_none() {
        let own = client.context().file.subject.clone().or(me.submits_for);
        filter.subject = Some(own.unwrap_or_else(|| "default".to_owned()));
    }
    Ok(())
}

/// Formats the filters for a message.
pub(crate) fn in_words(filter: &StepFilter) -> String {
    match filter.set().next() {
        None => "that you may change".to_owned(),
        Some(_) => filter.to_string(),
    }
}
