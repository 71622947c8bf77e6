//! Who is let in at all: tokens by which hosts join, what each host's certificate may say, and the end of a node's access.
//! Whether a certificate is genuine was checked before; how one looks is not known here.
//!
//! A use of a token is recorded before whoever drives the core gives a certificate for it, so that a token never lets in
//! more hosts than it may. The same key with the same token again is a repeat of that use and counts once.

use alloc::format;
use alloc::string::{String, ToString};

use sluice_common::id::{JoinTokenId, NodeName, PoolName};
use sluice_common::proof::{Claim, Fingerprint, Generation, SecretHash};
use sluice_common::time::Span;
use sluice_common::wire::Hello;

use crate::core::Core;
use crate::input::{NewJoinToken, ReplyId};
use crate::output::{Answer, Output, Refusal};
use crate::record::{JoinTokenMade, Record};
use crate::state::{JoinToken, MAX_REFUSALS, TokenStanding, default_pool};

/// A host that shows the secret of a token.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct JoinAsk {
    /// What the secret hashes to.
    pub hash: SecretHash,
    /// The name that it wants to have.
    pub node: NodeName,
    /// The pool that its config names, if it names one.
    pub pool: Option<PoolName>,
    /// The key that it made for itself.
    pub key: Fingerprint,
}

/// A host that is let in: its certificate is to say this.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Joined {
    /// Its name.
    pub node: NodeName,
    /// What else.
    pub claim: Claim,
}

/// Why a host is not let in.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum JoinRefusal {
    /// No token has this secret.
    #[error(
        "no join token has this secret: make one with `sluice token create`, and paste its line whole"
    )]
    Unknown,
    /// Its time is over.
    #[error("join token `{token}` expired {ago} ago: make another with `sluice token create`")]
    Expired {
        /// The token.
        token: JoinTokenId,
        /// How long ago.
        ago: Span,
    },
    /// It has let in as many hosts as it may.
    #[error(
        "join token `{token}` is used up, it was for {uses}: make another with `sluice token create`"
    )]
    UsedUp {
        /// The token.
        token: JoinTokenId,
        /// How many.
        uses: u32,
    },
    /// An admin has taken it back.
    #[error("join token `{token}` was revoked: ask whoever gave it to you")]
    Revoked {
        /// The token.
        token: JoinTokenId,
    },
    /// It is for another node.
    #[error(
        "join token `{token}` is for node `{only}` alone and this host calls itself `{node}`: set `node` in agent.toml, or make \
         a token for it"
    )]
    OtherNode {
        /// The token.
        token: JoinTokenId,
        /// For whom it is.
        only: NodeName,
        /// Who wants in.
        node: NodeName,
    },
    /// It is for another pool.
    #[error(
        "join token `{token}` is for pool `{only}` and the agent's config says pool `{pool}`: leave `pool` out of agent.toml, or \
         make a token by `sluice token create --pool {pool}`"
    )]
    OtherPool {
        /// The token.
        token: JoinTokenId,
        /// For which it is.
        only: PoolName,
        /// Which the config names.
        pool: PoolName,
    },
    /// A host has this name.
    #[error(
        "node `{node}` is there already: give this host another name (`node` in agent.toml); where it is the same host, \
         `sluice token create --node {node}` makes a token that lets it in anew"
    )]
    NodeTaken {
        /// The name.
        node: NodeName,
    },
    /// The access that this use had given was ended.
    #[error(
        "the access of node `{node}` was ended since it joined with this token: make another with `sluice token create`"
    )]
    Ended {
        /// The node.
        node: NodeName,
    },
    /// Its pool was deleted.
    #[error(
        "join token `{token}` is for pool `{pool}`, which is not there any more: make a token for another pool by \
         `sluice token create --pool POOL`"
    )]
    NoPool {
        /// The token.
        token: JoinTokenId,
        /// Its pool.
        pool: PoolName,
    },
    /// It leaves the pool to the host, and there is none of that name.
    #[error(
        "join token `{token}` leaves the pool to the host, and there is no pool `{pool}`{hint}: set `pool` in agent.toml, or \
         make a token by `sluice token create --pool POOL`"
    )]
    NoSuchPool {
        /// The token.
        token: JoinTokenId,
        /// What the host wants.
        pool: PoolName,
        /// What it may have meant.
        hint: String,
    },
}

impl Core {
    pub(crate) fn on_make_join_token(&mut self, reply: ReplyId, token: NewJoinToken) {
        let made = self.make_join_token(token);
        self.reply(reply, Answer::Changed(made));
    }

    fn make_join_token(&mut self, token: NewJoinToken) -> Result<(), Refusal> {
        let NewJoinToken {
            id,
            hash,
            pool,
            node,
            labels,
            uses,
            ttl,
        } = token;
        if let Some(pool) = pool.clone().filter(|it| self.state.pool(it).is_none()) {
            return Err(Refusal::UnknownPool { pool });
        }
        if !self.state.admission().has_room(self.now) {
            return Err(Refusal::TooManyJoinTokens);
        }
        let expires_at = self.now + ttl;
        self.record(Record::JoinTokenMade(JoinTokenMade {
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

    pub(crate) fn on_revoke_join_token(&mut self, reply: ReplyId, id: JoinTokenId) {
        let token = self.state.admission().tokens().get(&id);
        let revoked = match token.map(|token| token.revoked_at) {
            None => Err(Refusal::UnknownJoinToken { token: id }),
            Some(Some(_)) => Ok(()),
            Some(None) => {
                self.record(Record::JoinTokenRevoked { token: id });
                Ok(())
            }
        };
        self.reply(reply, Answer::Changed(revoked));
    }

    pub(crate) fn on_join(&mut self, reply: ReplyId, ask: JoinAsk) {
        let joined = self.join(&ask);
        self.reply(reply, Answer::Joined(joined));
    }

    fn join(&mut self, ask: &JoinAsk) -> Result<Joined, JoinRefusal> {
        let token = self.state.admission().by_hash(&ask.hash);
        let token = token.ok_or(JoinRefusal::Unknown)?;
        let (id, refusals) = (token.id.clone(), token.refusals);
        let pool = pool_by(token, ask);
        let known = match self.judge(token, ask) {
            Ok(known) => known,
            Err(refusal) => {
                if refusals < MAX_REFUSALS {
                    self.record(Record::JoinRefused {
                        token: id,
                        node: ask.node.clone(),
                        why: refusal.to_string(),
                    });
                }
                return Err(refusal);
            }
        };
        let generation = match known {
            Known::Repeat => self.state.admission().generation(&ask.node),
            Known::New => self.let_in(id, ask),
        };
        let claim = Claim {
            pool: Some(pool),
            generation,
        };
        let node = ask.node.clone();
        Ok(Joined { node, claim })
    }

    fn judge(&self, token: &JoinToken, ask: &JoinAsk) -> Result<Known, JoinRefusal> {
        let (id, node) = (token.id.clone(), ask.node.clone());
        let repeat = token.used.get(&ask.key).filter(|used| used.node == node);
        match token.standing(self.now) {
            TokenStanding::Revoked => return Err(JoinRefusal::Revoked { token: id }),
            TokenStanding::Expired => {
                let ago = self.now.since(token.expires_at);
                return Err(JoinRefusal::Expired { token: id, ago });
            }
            TokenStanding::UsedUp if repeat.is_none() => {
                let uses = token.uses;
                return Err(JoinRefusal::UsedUp { token: id, uses });
            }
            TokenStanding::UsedUp | TokenStanding::Open => {}
        }
        if let Some(only) = token.node.clone().filter(|only| *only != node) {
            let token = id;
            return Err(JoinRefusal::OtherNode { token, only, node });
        }
        let pool = pool_by(token, ask);
        if let Some(wish) = ask.pool.clone().filter(|wish| *wish != pool) {
            let token = id;
            return Err(JoinRefusal::OtherPool {
                token,
                only: pool,
                pool: wish,
            });
        }
        if self.state.pool(&pool).is_none() {
            return Err(match token.pool {
                Some(_) => JoinRefusal::NoPool { token: id, pool },
                None => JoinRefusal::NoSuchPool {
                    token: id,
                    hint: self.did_you_mean(&pool),
                    pool,
                },
            });
        }
        let admission = self.state.admission();
        match repeat {
            Some(used) if used.generation < admission.generation(&node) => {
                Err(JoinRefusal::Ended { node })
            }
            Some(_) => Ok(Known::Repeat),
            None if token.node.is_none() && self.is_taken(&node) => {
                Err(JoinRefusal::NodeTaken { node })
            }
            None => Ok(Known::New),
        }
    }

    fn is_taken(&self, node: &NodeName) -> bool {
        let access = self.state.admission().accesses().get(node);
        self.state.node(node).is_some() || access.is_some_and(|access| access.admitted)
    }

    fn let_in(&mut self, token: JoinTokenId, ask: &JoinAsk) -> Generation {
        let node = ask.node.clone();
        let generation = self.state.admission().generation(&node).next();
        self.record(Record::JoinTokenUsed {
            token,
            node,
            key: ask.key,
            generation,
        });
        self.cut(&ask.node, "another host has joined under this node's name");
        if self.state.node(&ask.node).is_some() {
            self.label_as_joined(&ask.node);
        }
        generation
    }

    /// Gives a node the labels of the token by which it joined.
    pub(crate) fn label_as_joined(&mut self, node: &NodeName) {
        let access = self.state.admission().accesses().get(node);
        let labels = access.map(|access| access.labels.clone());
        let labels = labels.into_iter().flatten();
        let labels = labels.map(|(key, value)| (key, Some(value))).collect();
        // Beyond the most that a node may have it gets none of them, and is let in all the same.
        let _as_many_as_fit = self.label(node, labels);
    }

    /// Whether a node's certificate opens anything.
    pub(crate) fn check_claim(&self, hello: &Hello, claim: &Claim) -> Result<(), String> {
        let node = &hello.node;
        let wanted = self.state.admission().generation(node);
        if claim.generation < wanted {
            return Err(format!(
                "the access of node `{node}` was ended, or given to a host that joined later: where this host is to be let in, \
                 `sluice token create --node {node}` makes a line for `sluice-agent join`, and `sluice-coordinator issue-node {node} \
                 --generation {wanted}` a certificate"
            ));
        }
        Ok(())
    }

    /// Ends a node's access: no certificate that it has opens anything any more, and its link is cut.
    pub(crate) fn revoke(&mut self, name: &NodeName) {
        let generation = self.state.admission().generation(name).next();
        let node = name.clone();
        self.record(Record::NodeRevoked { node, generation });
        self.cut(name, "the access of this node was ended");
    }

    /// Cuts the link that a node has, if it has one.
    pub(crate) fn cut(&mut self, node: &NodeName, why: &str) {
        let contact = self.contacts.get(node);
        if let Some(session) = contact.and_then(|contact| contact.session) {
            let why = String::from(why);
            self.output_send(Output::LetGo { session, why });
            self.on_node_gone(session, node);
        }
    }
}

/// The pool that a host joins: the token's, or else that of its config.
fn pool_by(token: &JoinToken, ask: &JoinAsk) -> PoolName {
    let named = token.pool.clone().or_else(|| ask.pool.clone());
    named.unwrap_or_else(default_pool)
}

enum Known {
    /// The same key has used the token before.
    Repeat,
    New,
}
