//! Applies records of join tokens and node access.

use alloc::collections::BTreeMap;

use sluice_common::credential::Generation;
use sluice_common::id::{JoinTokenId, NodeName};
use sluice_common::time::Time;

use crate::model::access::AccessChange;
use crate::model::admission::{JoinToken, TokenUse};
use crate::record::{JoinTokenMade, JoinTokenUsed};
use crate::state::State;

use super::{ApplyResult, Mismatch, RecordRef, need};

impl State {
    pub(super) fn on_access_changed(&mut self, at: Time, change: &AccessChange) -> ApplyResult {
        let fits = self.stored.access.fold(at, self.stored.seq, change);
        need(fits, || Mismatch::Access(change.about()))
    }

    pub(super) fn on_join_token_made(&mut self, at: Time, made: &JoinTokenMade) -> ApplyResult {
        let JoinTokenMade {
            token,
            hash,
            pool,
            node,
            labels,
            uses,
            expires_at,
        } = made;
        self.stored.admission.make_room(at);
        let made = JoinToken {
            id: token.clone(),
            hash: *hash,
            pool: pool.clone(),
            node: node.clone(),
            labels: labels.clone(),
            uses: *uses,
            made_at: at,
            expires_at: *expires_at,
            revoked_at: None,
            used: BTreeMap::new(),
            refusals: 0,
        };
        let before = self
            .stored
            .admission
            .tokens_mut()
            .insert(token.clone(), made);
        need(before.is_none(), || {
            Mismatch::There(RecordRef::JoinToken(token.clone()))
        })
    }

    pub(super) fn on_join_token_used(&mut self, it: &JoinTokenUsed) -> ApplyResult {
        let JoinTokenUsed {
            token: id,
            node,
            key,
            generation,
        } = it;
        let (key, generation) = (*key, *generation);
        let labels = {
            let token = self.token_mut(id)?;
            let node = node.clone();
            token.used.insert(key, TokenUse { node, generation });
            token.labels.clone()
        };
        let access = self.stored.admission.access_mut(node);
        access.generation = generation;
        access.admitted = true;
        access.labels = labels;
        Ok(())
    }

    pub(super) fn on_join_token_revoked(&mut self, at: Time, id: &JoinTokenId) -> ApplyResult {
        let token = self.token_mut(id)?;
        let open = token.revoked_at.replace(at).is_none();
        need(open, || Mismatch::Revoked(id.clone()))
    }

    pub(super) fn on_join_refused(&mut self, id: &JoinTokenId) -> ApplyResult {
        let token = self.token_mut(id)?;
        token.refusals = token.refusals.saturating_add(1);
        Ok(())
    }

    pub(super) fn on_node_revoked(
        &mut self,
        node: &NodeName,
        generation: Generation,
    ) -> ApplyResult {
        let access = self.stored.admission.access_mut(node);
        let before = access.generation;
        access.generation = generation;
        access.admitted = false;
        access.labels.clear();
        need(generation > before, || {
            Mismatch::Generation(node.clone(), generation, before)
        })
    }

    fn token_mut(&mut self, id: &JoinTokenId) -> Result<&mut JoinToken, Mismatch> {
        let token = self.stored.admission.tokens_mut().get_mut(id);
        token.ok_or_else(|| RecordRef::JoinToken(id.clone()).into())
    }
}
