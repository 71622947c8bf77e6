//! Filters of step lists as query parameters.

use sluice_common::selector::Selector;
use sluice_common::step::WorkKind;

use super::Query;

#[derive(Clone, Debug, Default)]
pub(crate) struct StepFilter {
    /// In one of these states, separated by commas; any if empty.
    pub(crate) states: String,
    /// Of this subject.
    pub(crate) subject: Option<String>,
    /// In this pool.
    pub(crate) pool: Option<String>,
    /// On this node.
    pub(crate) node: Option<String>,
    /// Of this kind of work.
    pub(crate) work: Option<WorkKind>,
    /// With matching labels.
    pub(crate) labels: Option<Selector>,
}

impl StepFilter {
    /// Returns the query parameters of the set fields.
    pub(super) fn query(&self) -> Query<'static> {
        let states = (!self.states.is_empty()).then(|| self.states.clone());
        let fields = [
            ("state", states),
            ("subject", self.subject.clone()),
            ("pool", self.pool.clone()),
            ("node", self.node.clone()),
            ("work", self.work.map(|work| work.to_string())),
            ("labels", self.labels.as_ref().map(Selector::to_string)),
        ];
        let asked = fields.into_iter();
        asked
            .filter_map(|(name, value)| Some((name, value?)))
            .collect()
    }
}
