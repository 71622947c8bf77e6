//! Admits hosts: join tokens, the contents of host certificates, and the end of a node's access. The driver has
//! checked before that a certificate is genuine.
//!
//! The use of a token is recorded before the driver issues a certificate for it, so that a token never admits more
//! hosts than it may. The same key with the same token again repeats that use and counts once.

use alloc::string::ToString;

use sluice_common::credential::{Generation, NodeClaim};
use sluice_common::id::{JoinTokenId, NodeName, PoolName};
use sluice_reasons::{JoinRefusal, SimilarPools};

use crate::context::Context;
use crate::hosts::labels::label_as_joined;
use crate::hosts::link::cut;
use crate::input::{NewJoinToken, ReplyId};
use crate::model::admission::{JoinToken, MAX_JOIN_TOKENS, MAX_REFUSALS, TokenStatus};
use crate::model::join::{JoinApplication, Joined};
use crate::model::pool::Pool;
use crate::model::step::default_pool;
use crate::output::{Answer, Refusal};
use crate::record;
use crate::record::{JoinTokenMade, Record};

pub(crate) fn on_make_join_token(ctx: &mut Context, reply: ReplyId, token: NewJoinToken) {
    let made = make_join_token(ctx, token);
    ctx.reply(reply, Answer::Changed(made));
}

fn make_join_token(ctx: &mut Context, token: NewJoinToken) -> Result<(), Refusal> {
    let NewJoinToken {
        id,
        hash,
        pool,
        node,
        labels,
        uses,
        ttl,
    } = token;
    if let Some(pool) = pool.clone().filter(|it| ctx.state().pool(it).is_none()) {
        return Err(Refusal::UnknownPool { pool });
    }
    if let Some(pool) = pool.clone().filter(|it| is_hostless(ctx, it)) {
        return Err(Refusal::PoolWithoutHosts { pool });
    }
    if !ctx.state().admission().has_room(ctx.now()) {
        return Err(Refusal::TooManyJoinTokens {
            limit: MAX_JOIN_TOKENS,
        });
    }
    let expires_at = ctx.now() + ttl;
    ctx.record(Record::JoinTokenMade(JoinTokenMade {
        token: id,
        hash,
        pool,
        node,
        labels,
        uses,
        expires_at,
    }));
    Ok(())
}

pub(crate) fn on_revoke_join_token(ctx: &mut Context, reply: ReplyId, id: JoinTokenId) {
    let token = ctx.state().admission().tokens().get(&id);
    let revoked = match token.map(|token| token.revoked_at) {
        None => Err(Refusal::UnknownJoinToken { token: id }),
        Some(Some(_)) => Ok(()),
        Some(None) => {
            ctx.record(Record::JoinTokenRevoked { token: id });
            Ok(())
        }
    };
    ctx.reply(reply, Answer::Changed(revoked));
}

pub(crate) fn on_join(ctx: &mut Context, reply: ReplyId, application: JoinApplication) {
    let joined = join(ctx, &application);
    ctx.reply(reply, Answer::Joined(joined));
}

fn join(ctx: &mut Context, application: &JoinApplication) -> Result<Joined, JoinRefusal> {
    let token = ctx.state().admission().by_hash(&application.hash);
    let token = token.ok_or(JoinRefusal::Unknown)?;
    let (id, refusals) = (token.id.clone(), token.refusals);
    let pool = pool_by(token, application);
    let known = match judge(ctx, token, application) {
        Ok(known) => known,
        Err(refusal) => {
            if refusals < MAX_REFUSALS {
                ctx.record(Record::JoinRefused(record::JoinRefused {
                    token: id,
                    node: application.node.clone(),
                    why: refusal.to_string(),
                }));
            }
            return Err(refusal);
        }
    };
    let generation = match known {
        TokenUseKind::Repeat => ctx.state().admission().generation(&application.node),
        TokenUseKind::New => let_in(ctx, id, application),
    };
    let claim = NodeClaim {
        pool: Some(pool),
        generation,
    };
    let node = application.node.clone();
    Ok(Joined { node, claim })
}

fn judge(
    ctx: &Context,
    token: &JoinToken,
    application: &JoinApplication,
) -> Result<TokenUseKind, JoinRefusal> {
    let (id, node) = (token.id.clone(), application.node.clone());
    let repeat = token
        .used
        .get(&application.key)
        .filter(|used| used.node == node);
    match token.standing(ctx.now()) {
        TokenStatus::Revoked => return Err(JoinRefusal::Revoked { token: id }),
        TokenStatus::Expired => {
            let ago = ctx.now().since(token.expires_at);
            return Err(JoinRefusal::Expired { token: id, ago });
        }
        TokenStatus::UsedUp if repeat.is_none() => {
            let uses = token.uses;
            return Err(JoinRefusal::UsedUp { token: id, uses });
        }
        TokenStatus::UsedUp | TokenStatus::Open => {}
    }
    if let Some(only) = token.node.clone().filter(|only| *only != node) {
        let token = id;
        return Err(JoinRefusal::OtherNode { token, only, node });
    }
    let pool = pool_by(token, application);
    if let Some(wish) = application.pool.clone().filter(|wish| *wish != pool) {
        let token = id;
        return Err(JoinRefusal::OtherPool {
            token,
            only: pool,
            pool: wish,
        });
    }
    if ctx.state().pool(&pool).is_none() {
        return Err(match token.pool {
            Some(_) => JoinRefusal::NoPool { token: id, pool },
            None => JoinRefusal::NoSuchPool {
                token: id,
                near: SimilarPools::to(&pool, ctx.state().pools().keys()),
                pool,
            },
        });
    }
    if is_hostless(ctx, &pool) {
        return Err(JoinRefusal::PoolWithoutHosts { pool });
    }
    if node.is_of_pool() {
        return Err(JoinRefusal::ReservedName { node });
    }
    let admission = ctx.state().admission();
    match repeat {
        Some(used) if used.generation < admission.generation(&node) => {
            Err(JoinRefusal::Ended { node })
        }
        Some(_) => Ok(TokenUseKind::Repeat),
        None if token.node.is_none() && is_taken(ctx, &node) => {
            Err(JoinRefusal::NodeTaken { node })
        }
        None => Ok(TokenUseKind::New),
    }
}

/// Whether no host can join a pool, by its terms.
pub(crate) fn is_hostless(ctx: &Context, pool: &PoolName) -> bool {
    let pool = ctx.state().pool(pool);
    pool.is_some_and(Pool::is_hostless)
}

fn is_taken(ctx: &Context, node: &NodeName) -> bool {
    let access = ctx.state().admission().accesses().get(node);
    ctx.state().node(node).is_some() || access.is_some_and(|access| access.admitted)
}

fn let_in(ctx: &mut Context, token: JoinTokenId, application: &JoinApplication) -> Generation {
    let node = application.node.clone();
    let generation = ctx.state().admission().generation(&node).next();
    ctx.record(Record::JoinTokenUsed(record::JoinTokenUsed {
        token,
        node,
        key: application.key,
        generation,
    }));
    cut(
        ctx,
        &application.node,
        "another host has joined under this node's name",
    );
    if ctx.state().node(&application.node).is_some() {
        label_as_joined(ctx, &application.node);
    }
    generation
}

/// The pool that a host joins: the token's, or else that of its config.
fn pool_by(token: &JoinToken, application: &JoinApplication) -> PoolName {
    let named = token.pool.clone().or_else(|| application.pool.clone());
    named.unwrap_or_else(default_pool)
}

enum TokenUseKind {
    /// The same key has used the token before.
    Repeat,
    New,
}
