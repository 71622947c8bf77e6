//! Lists of steps.

use sluice_common::api::{Page, StepFilter, StepView};

use super::{ApiError, Client, Query};

pub(super) fn steps_query(filter: &StepFilter) -> Query<'static> {
    let set = filter.set();
    set.map(|(name, value)| (name, value.to_owned())).collect()
}

impl Client {
    /// Calls `GET /v1/steps` for every page.
    pub(crate) fn steps(&self, filter: &StepFilter) -> Result<Vec<StepView>, ApiError> {
        self.all_pages("/v1/steps", steps_query(filter))
    }

    /// Calls `GET /v1/steps` for the first `limit` steps in an order, or all. The page that it returns is as long as
    /// needed.
    pub(crate) fn sorted_steps(
        &self,
        filter: &StepFilter,
        sort: &str,
        limit: Option<usize>,
    ) -> Result<Page<StepView>, ApiError> {
        let mut query = steps_query(filter);
        query.push(("sort", sort.to_owned()));
        let mut pages = self.pages("/v1/steps", query, limit)?;
        pages.items.truncate(limit.unwrap_or(usize::MAX));
        Ok(pages)
    }

    /// Calls `GET /v1/steps` for one page of at most `limit` steps.
    pub(crate) fn first_steps(
        &self,
        filter: &StepFilter,
        limit: usize,
    ) -> Result<Vec<StepView>, ApiError> {
        let mut query = steps_query(filter);
        query.push(("limit", limit.to_string()));
        let page: Page<StepView> = self.get("/v1/steps", &query)?;
        Ok(page.items)
    }
}
