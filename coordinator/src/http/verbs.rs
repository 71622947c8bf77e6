//! Calls by a verb after a colon, such as `/v1/steps/ID:cancel`. The router takes them and the thing itself as one
//! path, so the allowed methods of each are checked here.

use sluice_common::nearest::nearest;

use super::error::ApiError;

/// The verbs of one kind of thing.
pub(super) struct Verbs {
    /// Path before the thing's name.
    pub(super) under: &'static str,
    /// Methods of the thing itself.
    pub(super) own: &'static str,
    /// Each verb with its methods.
    pub(super) verbs: &'static [(&'static str, &'static str)],
}

pub(super) const STEPS: Verbs = Verbs {
    under: "/v1/steps/",
    own: "GET,HEAD,DELETE",
    verbs: &[
        ("cancel", "POST"),
        ("wait", "GET,HEAD"),
        ("suspend", "POST"),
        ("resume", "POST"),
        ("requeue", "POST"),
        ("move", "POST"),
    ],
};

pub(super) const ALLOCATIONS: Verbs = Verbs {
    under: "/v1/allocations/",
    own: "GET,HEAD",
    verbs: &[("renew", "POST"), ("release", "POST")],
};

pub(super) const SERVICES: Verbs = Verbs {
    under: "/v1/services/",
    own: "GET,HEAD,PUT,DELETE",
    verbs: &[("report", "POST"), ("scale", "POST"), ("undo", "POST")],
};

pub(super) const NODES: Verbs = Verbs {
    under: "/v1/nodes/",
    own: "GET,HEAD,DELETE",
    verbs: &[
        ("cordon", "POST"),
        ("uncordon", "POST"),
        ("drain", "POST"),
        ("move", "POST"),
        ("revoke", "POST"),
    ],
};

impl Verbs {
    /// Returns the thing's name and the verb, if the method is allowed.
    pub(super) fn split<'a>(
        &self,
        segment: &'a str,
        method: &str,
    ) -> Result<(&'a str, Option<&'static str>), ApiError> {
        let (name, verb, allow) = match segment.rsplit_once(':') {
            None => (segment, None, self.own),
            Some((name, verb)) => {
                let known = self.verbs.iter().find(|(known, _)| *known == verb);
                let (verb, allow) = known.ok_or_else(|| self.unknown(segment, verb))?;
                (name, Some(*verb), *allow)
            }
        };
        if allow.split(',').any(|allowed| allowed == method) {
            return Ok((name, verb));
        }
        Err(ApiError::MethodNotAllowed {
            method: method.to_owned(),
            path: format!("{}{segment}", self.under),
            allow: Some(allow.to_owned()),
        })
    }

    /// Returns the error for a method that has no handler.
    pub(super) fn refuse(&self, segment: &str, method: &str) -> ApiError {
        let refused = self.split(segment, method).map(|_| ());
        refused.expect_err("a method of the router's comes to its own handler")
    }

    fn unknown(&self, segment: &str, verb: &str) -> ApiError {
        let near = nearest(verb, self.verbs.iter().map(|(verb, _)| *verb));
        let hint = near.map_or_else(String::new, |near| format!(" (did you mean `:{near}`?)"));
        ApiError::UnknownRoute {
            path: format!("{}{segment}{hint}", self.under),
        }
    }
}
