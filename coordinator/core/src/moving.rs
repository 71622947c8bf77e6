//! Admins move nodes to other pools: first it is drained, then it is in the other pool, whatever its agent's config says.
//! Its units are granted by one pool at a time, for it moves when nothing holds any of them.
//!
//! ```text
//!            move                       (nothing is left)
//! in a pool ------> draining, on its way ---------------> in the other, open as it was before
//!      ^                   |
//!      +---- uncordon -----+
//! ```

use alloc::string::String;

use sluice_common::id::{NodeName, PoolName};
use sluice_common::time::Span;

use crate::core::Core;
use crate::output::Refusal;
use crate::record::Record;
use crate::state::Node;

impl Core {
    pub(crate) fn move_node(
        &mut self,
        name: &NodeName,
        pool: PoolName,
        reason: Option<String>,
        deadline: Option<Span>,
    ) -> Result<(), Refusal> {
        if self.state.pool(&pool).is_none() {
            return Err(Refusal::UnknownPool { pool });
        }
        let Some(node) = self.state.node(name) else {
            return Ok(());
        };
        let on_its_way = node.moves_to().cloned();
        let node = name.clone();
        match on_its_way {
            // It is there already, or is to stay.
            None if self.is_in(name, &pool) => return Ok(()),
            Some(_) if self.is_in(name, &pool) => {
                self.record(Record::NodeUncordoned { node });
                return Ok(());
            }
            Some(other) if other == pool => {}
            None | Some(_) => self.record(Record::NodeMoving { node, pool }),
        }
        self.drain(name, reason, deadline);
        Ok(())
    }

    fn is_in(&self, name: &NodeName, pool: &PoolName) -> bool {
        let node = self.state.node(name);
        node.is_some_and(|node| node.pool == *pool)
    }

    /// A node that was to move and holds nothing any more does.
    pub(crate) fn move_if_empty(&mut self, name: &NodeName) {
        let to = self.state.node(name).and_then(Node::moves_to).cloned();
        let empty = self.state.attempts_on(name).next().is_none();
        if let Some(pool) = to.filter(|_| empty) {
            let node = name.clone();
            self.record(Record::NodeMoved { node, pool });
        }
    }
}
