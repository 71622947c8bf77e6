//! Lists of allocations: recent ones unless the caller asks for all.

use sluice_common::api::StepFilter;

use super::kinds::Gettable;
use super::steps::RECENT;
use crate::args::GetArgs;
use crate::client::{ApiError, Client};
use crate::render::allocation::ListedAllocation;

impl Gettable for ListedAllocation {
    fn known(_client: &Client) -> Vec<String> {
        Vec::new()
    }

    const OWN_EVENTS: bool = true;

    fn all(client: &Client, args: &GetArgs) -> Result<Vec<Self>, ApiError> {
        let filter = StepFilter {
            subject: args.subject.clone(),
            submitted_by: args.submitted_by.clone(),
            pool: args.pool.clone(),
            since: (!args.all).then(|| RECENT.to_owned()),
            ..StepFilter::default()
        };
        let steps = client.allocations(&filter)?;
        Ok(steps.into_iter().map(Self).collect())
    }

    fn one(client: &Client, name: &str) -> Result<Self, ApiError> {
        client.for_step(name, |id| client.allocation(id)).map(Self)
    }

    fn fits(&self, args: &GetArgs) -> bool {
        let is = |wanted: &Option<String>, has: Option<&str>| {
            wanted.as_deref().is_none_or(|wanted| has == Some(wanted))
        };
        self.0.allocation.is_some()
            && is(&args.subject, Some(&self.0.subject))
            && is(&args.submitted_by, self.0.submitted_by.as_deref())
            && is(&args.pool, self.0.pool.as_deref())
    }
}
