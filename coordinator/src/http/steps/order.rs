//! Orders of the list of steps. In the order of submission, in both directions, the core has an index. For the others a
//! page goes through all steps, by short scans, and keeps the first that belong on it.

use std::cmp::Ordering;

use serde::{Deserialize, Serialize};
use sluice_common::api::StepOrderKey;
use sluice_common::hex;
use sluice_common::id::{PoolName, StepId};
use sluice_common::state::StepState;
use sluice_common::time::Time;
use smol_str::SmolStr;

use super::super::error::ApiError;
use super::super::params;
use super::filter::Candidate;

/// The order of a list.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct StepOrder {
    pub(super) key: StepOrderKey,
    pub(super) descending: bool,
}

impl StepOrder {
    /// Parses a key, with `-` before it for the reverse order.
    pub(super) fn read(text: Option<&str>) -> Result<Self, ApiError> {
        let text = text.unwrap_or("submitted");
        let (descending, word) = match text.strip_prefix('-') {
            Some(word) => (true, word),
            None => (false, text),
        };
        let words = StepOrderKey::ALL.into_iter().map(StepOrderKey::as_str);
        let found = StepOrderKey::ALL
            .into_iter()
            .find(|key| key.as_str() == word);
        let key = found.ok_or_else(|| {
            let hint = params::hint(word, words, |all| {
                format!("write one of {}", all.join(", "))
            });
            let shown = params::shown(word);
            params::invalid("sort", format!("steps are not sorted by `{shown}`: {hint}"))
        })?;
        Ok(Self { key, descending })
    }

    /// Returns the position of a step in this order.
    #[inline]
    fn position<'b>(
        self,
        candidate: &'b Candidate<'_>,
        pool: Option<&'b PoolName>,
    ) -> PositionRef<'b> {
        let row = candidate.row();
        let time = |time: Option<Time>| time.map(|time| number(time.unix_millis()));
        let value = match self.key {
            StepOrderKey::Submitted => Some(number(row.order)),
            StepOrderKey::Started => time(row.began_at),
            StepOrderKey::Ended => time(row.ended_at),
            StepOrderKey::Name => Some(ValueRef::Text(candidate.name())),
            StepOrderKey::State => {
                let order = StepState::ALL.iter().position(|state| *state == row.state);
                order.map(|order| number(order as u64))
            }
            StepOrderKey::Subject => Some(ValueRef::Text(row.kind.subject.as_str())),
            StepOrderKey::Pool => pool.map(|pool| ValueRef::Text(pool.as_str())),
            StepOrderKey::Priority => Some(ValueRef::Number(row.kind.priority)),
        };
        PositionRef {
            descending: self.descending,
            value,
            place: row.order,
        }
    }
}

fn number(value: u64) -> ValueRef<'static> {
    ValueRef::Number(i64::try_from(value).unwrap_or(i64::MAX))
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
enum OrderValue {
    Number(i64),
    Text(SmolStr),
}

/// Position of a step in a sorted list, as a cursor has it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct StepPosition {
    descending: bool,
    value: Option<OrderValue>,
    place: u64,
}

#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum ValueRef<'a> {
    Number(i64),
    Text(&'a str),
}

/// The position of a step that is passed over: most are compared with one other and not kept.
#[derive(Clone, Copy, PartialEq, Eq)]
struct PositionRef<'a> {
    descending: bool,
    value: Option<ValueRef<'a>>,
    place: u64,
}

impl PositionRef<'_> {
    fn to_position(self) -> StepPosition {
        let value = self.value.map(|value| match value {
            ValueRef::Number(number) => OrderValue::Number(number),
            ValueRef::Text(text) => OrderValue::Text(text.into()),
        });
        StepPosition {
            descending: self.descending,
            value,
            place: self.place,
        }
    }
}

/// Steps without a value come last; of equal ones the earlier submitted comes first.
impl Ord for PositionRef<'_> {
    #[inline]
    fn cmp(&self, other: &Self) -> Ordering {
        let values = match (&self.value, &other.value) {
            (Some(own), Some(other)) => {
                let order = own.cmp(other);
                if self.descending {
                    order.reverse()
                } else {
                    order
                }
            }
            (own, other) => other.is_some().cmp(&own.is_some()),
        };
        values.then(self.place.cmp(&other.place))
    }
}

impl PartialOrd for PositionRef<'_> {
    #[inline]
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

/// Writes the position as a cursor: letters and digits alone, so that it needs no quoting.
impl std::fmt::Display for StepPosition {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let json = serde_json::to_vec(self).map_err(|_| std::fmt::Error)?;
        f.write_str(&hex::encode(&json))
    }
}

impl StepPosition {
    fn view(&self) -> PositionRef<'_> {
        let value = self.value.as_ref().map(|value| match value {
            OrderValue::Number(number) => ValueRef::Number(*number),
            OrderValue::Text(text) => ValueRef::Text(text),
        });
        PositionRef {
            descending: self.descending,
            value,
            place: self.place,
        }
    }

    /// Parses a cursor of a list in this order.
    pub(super) fn read(cursor: &str, order: StepOrder) -> Option<Self> {
        let json = hex::decode_all(cursor)?;
        let position: Self = serde_json::from_slice(&json).ok()?;
        (position.descending == order.descending).then_some(position)
    }
}

fn by_position(one: &(StepPosition, StepId), other: &(StepPosition, StepId)) -> Ordering {
    one.0.view().cmp(&other.0.view())
}

/// Pages of steps that are kept before they are cut to one: the more, the rarer is the cut.
const KEPT_PAGES: usize = 8;

/// The first steps of a page in an order without an index, while all steps are gone through.
pub(super) struct PageSteps {
    order: StepOrder,
    after: Option<StepPosition>,
    room: usize,
    /// The first steps so far, and others.
    kept: Vec<(StepPosition, StepId)>,
    /// Position before which a step must be, once there is no room behind it.
    bound: Option<StepPosition>,
}

impl PageSteps {
    pub(super) fn new(order: StepOrder, after: Option<StepPosition>, room: usize) -> Self {
        Self {
            order,
            after,
            room,
            kept: Vec::new(),
            bound: None,
        }
    }

    pub(super) fn offer(&mut self, candidate: &Candidate<'_>, pool: Option<&PoolName>) {
        let position = self.order.position(candidate, pool);
        let is_before = |bound: &StepPosition| position.cmp(&bound.view()).is_lt();
        let is_after = |after: &StepPosition| position.cmp(&after.view()).is_gt();
        if !self.after.as_ref().is_none_or(is_after) || !self.bound.as_ref().is_none_or(is_before) {
            return;
        }
        self.kept
            .push((position.to_position(), candidate.id().clone()));
        if self.kept.len() == KEPT_PAGES * self.room {
            let (_, last, _) = self.kept.select_nth_unstable_by(self.room - 1, by_position);
            self.bound = Some(last.0.clone());
            self.kept.truncate(self.room);
        }
    }

    pub(super) fn in_order(mut self) -> impl Iterator<Item = (StepPosition, StepId)> {
        self.kept.sort_unstable_by(by_position);
        self.kept.into_iter().take(self.room)
    }
}
