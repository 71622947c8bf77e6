//! Sentences about what a step inside an allocation waits for.

use alloc::format;
use alloc::string::{String, ToString};
use alloc::vec::Vec;

use sluice_common::id::StepId;
use sluice_common::quantity::{figure, quantity};

use super::super::shortened;
use crate::standing::AllocationWait;

/// Most steps that a sentence names.
const NAMED_STEPS: usize = 5;

pub(super) fn waits(allocation: &StepId, wait: &AllocationWait) -> String {
    match wait {
        AllocationWait::Allocation { state } => {
            format!("it starts once the allocation `{allocation}` has its hosts: that is {state}")
        }
        AllocationWait::Host { node, state } => {
            format!("host `{node}` of the allocation `{allocation}` is {state}")
        }
        AllocationWait::Turn { behind } => {
            format!("`{behind}` goes before it inside the allocation `{allocation}`")
        }
        AllocationWait::Room {
            shortage,
            holders,
            unfit,
        } => {
            let asked = quantity(&shortage.key, shortage.asked);
            let free = figure(&shortage.key, shortage.has);
            let node = &shortage.node;
            let named = holders.iter().map(|it| format!("`{it}`")).collect();
            let named = shortened(named, NAMED_STEPS);
            let held = match holders.len() {
                0 => None,
                1 => Some(format!("{named} holds the rest")),
                _ => Some(format!("{named} hold the rest")),
            };
            let unfit = unfit.as_ref().map(ToString::to_string);
            let clauses: Vec<String> = unfit.into_iter().chain(held).collect();
            let why = clauses.join(", and ");
            format!(
                "it asks for {asked}, and the allocation `{allocation}` has {free} free on `{node}`: {why}"
            )
        }
    }
}
