//! Platform leads set the terms of pools and bind subjects to them. A change that a pool could not keep is refused
//! whole; one that changes nothing is answered and not recorded.

use alloc::string::String;

use sluice_common::id::{PoolName, Subject};
use sluice_common::time::Span;

use crate::core::Core;
use crate::input::ReplyId;
use crate::market::{Policy, Table};
use crate::output::{Answer, Refusal};
use crate::record::Record;

impl Core {
    pub(crate) fn on_put_pool(
        &mut self,
        reply: ReplyId,
        pool: PoolName,
        description: String,
        capacity: Table,
        min_runtime: Span,
    ) {
        let same = self.state.pool(&pool).is_some_and(|known| {
            known.description == description
                && known.capacity == capacity
                && known.min_runtime == min_runtime
        });
        if !same {
            self.record(Record::PoolPut {
                pool,
                description,
                capacity,
                min_runtime,
            });
        }
        self.reply(reply, Answer::Changed(Ok(())));
    }

    pub(crate) fn on_put_policy(
        &mut self,
        reply: ReplyId,
        pool: PoolName,
        subject: Subject,
        policy: Policy,
    ) {
        let changed = self.put_policy(pool, subject, policy);
        self.reply(reply, Answer::Changed(changed));
    }

    fn put_policy(
        &mut self,
        pool: PoolName,
        subject: Subject,
        policy: Policy,
    ) -> Result<(), Refusal> {
        let Some(known) = self.state.pool(&pool) else {
            return Err(Refusal::UnknownPool { pool });
        };
        if known.policies.get(&subject) == Some(&policy) {
            return Ok(());
        }
        let vetted = self.state.market().pool(&pool);
        if let Some(Err(why)) = vetted.map(|pool| pool.vet(&subject, &policy)) {
            return Err(Refusal::BadPolicy { pool, subject, why });
        }
        self.record(Record::PolicyPut {
            pool,
            subject,
            policy,
        });
        Ok(())
    }

    pub(crate) fn on_delete_policy(&mut self, reply: ReplyId, pool: PoolName, subject: Subject) {
        let known = self.state.pool(&pool);
        let changed = match known.map(|known| known.policies.contains_key(&subject)) {
            None => Err(Refusal::UnknownPool { pool }),
            Some(false) => Err(Refusal::UnknownPolicy { pool, subject }),
            Some(true) => {
                self.record(Record::PolicyDeleted { pool, subject });
                Ok(())
            }
        };
        self.reply(reply, Answer::Changed(changed));
    }
}
