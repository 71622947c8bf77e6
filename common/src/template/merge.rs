//! Merges template layers: maps merge by key, lists merge by `name`, scalars replace. Merging is associative and
//! idempotent, and an empty layer is neutral.
//!
//! If all items of a list have names, they merge one by one: an item overrides the lower item of the same name field by
//! field, and new items are appended. A list that is empty or has an unnamed item replaces the lower list.

use alloc::collections::BTreeMap;
use alloc::string::String;
use alloc::vec::Vec;

use serde::{Deserialize, Serialize};

use super::{DefaultResources, Hook, Hooks, Mount, Template};

/// List item that merges by name.
pub trait ListItem {
    /// Name of the item, if any.
    fn name(&self) -> Option<&str>;

    /// Merges this item over a lower one of the same name.
    #[must_use]
    fn over(self, below: Self) -> Self;
}

/// A list in a layer.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[cfg_attr(feature = "schema", schemars(with = "Vec<T>"))]
#[serde(
    from = "Vec<T>",
    into = "Vec<T>",
    bound(
        serialize = "T: Clone + Serialize",
        deserialize = "T: ListItem + Deserialize<'de>"
    )
)]
pub struct LayeredList<T> {
    /// Whether the list replaces the lower one.
    replaces: bool,
    items: Vec<T>,
}

impl<T: ListItem> From<Vec<T>> for LayeredList<T> {
    fn from(items: Vec<T>) -> Self {
        let replaces = items.is_empty() || items.iter().any(|item| item.name().is_none());
        Self { replaces, items }
    }
}

impl<T> From<LayeredList<T>> for Vec<T> {
    fn from(list: LayeredList<T>) -> Self {
        list.items
    }
}

impl<T: ListItem> LayeredList<T> {
    /// Items in order.
    pub fn items(&self) -> &[T] {
        &self.items
    }

    /// Whether the list replaces the lower one.
    pub const fn replaces(&self) -> bool {
        self.replaces
    }

    /// Maps each item to a new one.
    #[must_use]
    pub fn each(&self, change: impl Fn(&T) -> T) -> Self {
        Self {
            replaces: self.replaces,
            items: self.items.iter().map(change).collect(),
        }
    }

    /// Merges this list over a lower one.
    #[must_use]
    pub fn over(self, below: Self) -> Self {
        if self.replaces {
            return self;
        }
        let Self { replaces, items } = below;
        let mut merged: Vec<T> = Vec::with_capacity(items.len() + self.items.len());
        let mut own: Vec<Option<T>> = self.items.into_iter().map(Some).collect();
        for item in items {
            let is_namesake = |own: &&mut Option<T>| {
                let name = own.as_ref().and_then(ListItem::name);
                name.is_some() && name == item.name()
            };
            match own.iter_mut().find(is_namesake).and_then(Option::take) {
                Some(above) => merged.push(above.over(item)),
                None => merged.push(item),
            }
        }
        merged.extend(own.into_iter().flatten());
        Self {
            replaces,
            items: merged,
        }
    }
}

impl ListItem for Mount {
    fn name(&self) -> Option<&str> {
        self.name.as_deref()
    }

    fn over(self, below: Self) -> Self {
        Self {
            name: self.name.or(below.name),
            source: self.source,
            target: self.target.or(below.target),
            read_only: self.read_only.or(below.read_only),
        }
    }
}

impl ListItem for Hook {
    fn name(&self) -> Option<&str> {
        self.name.as_deref()
    }

    fn over(self, below: Self) -> Self {
        Self {
            name: self.name.or(below.name),
            command: self.command,
            timeout: self.timeout.or(below.timeout),
        }
    }
}

/// Merges two optional lists.
pub fn merge_lists<T: ListItem>(
    above: Option<LayeredList<T>>,
    below: Option<LayeredList<T>>,
) -> Option<LayeredList<T>> {
    match (above, below) {
        (Some(above), Some(below)) => Some(above.over(below)),
        (above, below) => above.or(below),
    }
}

fn maps<V>(above: BTreeMap<String, V>, mut below: BTreeMap<String, V>) -> BTreeMap<String, V> {
    below.extend(above);
    below
}

impl Template {
    /// Merges this layer over a lower one.
    #[must_use]
    pub fn over(self, below: Template) -> Template {
        let mut env = below.env;
        env.extend(self.env);
        Template {
            description: match self.description.is_empty() {
                true => below.description,
                false => self.description,
            },
            env,
            wrapper: self.wrapper.or(below.wrapper),
            workdir: self.workdir.or(below.workdir),
            limits: maps(self.limits, below.limits),
            hooks: Hooks {
                before: merge_lists(self.hooks.before, below.hooks.before),
                after: merge_lists(self.hooks.after, below.hooks.after),
            },
            resources: self.resources.over(below.resources),
            mounts: merge_lists(self.mounts, below.mounts),
            allowed_mounts: merge_lists(self.allowed_mounts, below.allowed_mounts),
            mount_argument: self.mount_argument.or(below.mount_argument),
            privileged_allowed: self.privileged_allowed.or(below.privileged_allowed),
            privileged_argument: self.privileged_argument.or(below.privileged_argument),
            host_network_allowed: self.host_network_allowed.or(below.host_network_allowed),
            host_network_argument: self.host_network_argument.or(below.host_network_argument),
        }
    }
}

impl DefaultResources {
    fn over(self, below: DefaultResources) -> Self {
        Self {
            gpu_count: self.gpu_count.or(below.gpu_count),
            cpu_count: self.cpu_count.or(below.cpu_count),
            memory: self.memory.or(below.memory),
            storage: self.storage.or(below.storage),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::template::LimitValue;
    use alloc::format;
    use proptest::collection::{btree_map, vec};
    use proptest::option::of;
    use proptest::prelude::*;

    fn template(json: &str) -> Template {
        serde_json::from_str(json).unwrap()
    }

    #[test]
    fn maps_merge_lists_merge_by_name_scalars_replace_and_zero_is_a_value() {
        let below = template(
            r#"{"env":{"A":"1","B":"1"},"wrapper":["nice"],"workdir":"/a","limits":{"nofile":10,"core":5},
                "resources":{"gpu_count":4,"memory":"1GiB"},
                "mounts":[{"name":"data","source":"/data","read_only":true},{"name":"tmp","source":"/tmp"}],
                "hooks":{"before":[{"command":["x"]}]},"privileged_allowed":true}"#,
        );
        let above = template(
            r#"{"env":{"B":"2"},"wrapper":[],"limits":{"core":0},"resources":{"gpu_count":0},
                "mounts":[{"name":"new","source":"/new"},{"name":"data","source":"/other"}],
                "hooks":{"before":[{"command":["y"]}]},"privileged_allowed":false}"#,
        );
        let expected = template(
            r#"{"env":{"A":"1","B":"2"},"wrapper":[],"workdir":"/a","limits":{"nofile":10,"core":0},
                "resources":{"gpu_count":0,"memory":"1GiB"},
                "mounts":[{"name":"data","source":"/other","read_only":true},{"name":"tmp","source":"/tmp"},
                  {"name":"new","source":"/new"}],
                "hooks":{"before":[{"command":["y"]}]},"privileged_allowed":false}"#,
        );
        assert_eq!(above.over(below), expected);
    }

    fn named() -> impl Strategy<Value = Option<alloc::string::String>> {
        of("[a-c]")
    }

    /// Drops repeated names, which the check of a document refuses.
    fn unique<T: ListItem>(items: Vec<T>) -> LayeredList<T> {
        let mut kept: Vec<T> = Vec::new();
        for item in items {
            let known = kept.iter().any(|other| other.name() == item.name());
            if item.name().is_none() || !known {
                kept.push(item);
            }
        }
        kept.into()
    }

    fn mounts() -> impl Strategy<Value = Option<LayeredList<Mount>>> {
        let one = (named(), "/[a-c]", of("/[a-c]"), of(any::<bool>()));
        let one = one.prop_map(|(name, source, target, read_only)| Mount {
            name,
            source,
            target,
            read_only,
        });
        of(vec(one, 0..4).prop_map(unique))
    }

    fn hooks() -> impl Strategy<Value = Option<LayeredList<Hook>>> {
        let one = (named(), "[a-c]", of("[1-3]s"));
        let one = one.prop_map(|(name, program, timeout)| Hook {
            name,
            command: alloc::vec![program],
            timeout,
        });
        of(vec(one, 0..4).prop_map(unique))
    }

    fn templates() -> impl Strategy<Value = Template> {
        let maps = (
            btree_map("[A-C]", "[a-c]", 0..3),
            btree_map("[a-c]", 0u64..3, 0..3),
        );
        let texts = (of(vec("[a-c]", 0..3)), of("/[a-c]"), of("[a-c]"));
        let lists = (mounts(), mounts(), hooks(), hooks());
        let flags = (of(any::<bool>()), of(any::<bool>()));
        let amounts = (of(0u64..3), of(0u32..3), of("[1-3]GiB"));
        (maps, texts, lists, flags, amounts).prop_map(
            |((env, limits), (wrapper, workdir, argument), lists, flags, amounts)| Template {
                description: argument.clone().unwrap_or_default(),
                env: env.into(),
                wrapper,
                workdir,
                limits: limits
                    .into_iter()
                    .map(|(name, n)| (name, LimitValue::Number(n)))
                    .collect(),
                hooks: Hooks {
                    before: lists.2,
                    after: lists.3,
                },
                resources: DefaultResources {
                    gpu_count: amounts.0,
                    cpu_count: amounts.1.map(f64::from),
                    memory: amounts.2.clone(),
                    storage: amounts.2,
                },
                mounts: lists.0,
                allowed_mounts: lists.1,
                mount_argument: argument.clone(),
                privileged_allowed: flags.0,
                privileged_argument: argument.clone(),
                host_network_allowed: flags.1,
                host_network_argument: argument,
            },
        )
    }

    proptest! {
        #[test]
        fn layers_may_be_joined_in_any_grouping(a in templates(), b in templates(), c in templates()) {
            let left = a.clone().over(b.clone()).over(c.clone());
            prop_assert_eq!(left, a.over(b.over(c)));
        }

        #[test]
        fn any_list_of_layers_may_be_split_anywhere(layers in vec(templates(), 0..6), at in 0usize..6) {
            let join = |layers: &[Template]| {
                layers.iter().cloned().fold(Template::default(), |below, above| above.over(below))
            };
            let (low, high) = layers.split_at(at.min(layers.len()));
            prop_assert_eq!(join(high).over(join(low)), join(&layers));
        }

        #[test]
        fn a_layer_over_itself_is_itself(a in templates()) {
            prop_assert_eq!(a.clone().over(a.clone()), a);
        }

        #[test]
        fn an_empty_layer_changes_nothing(a in templates()) {
            prop_assert_eq!(a.clone().over(Template::default()), a.clone());
            prop_assert_eq!(Template::default().over(a.clone()), a);
        }

        #[test]
        fn what_is_written_is_read_back(a in templates()) {
            let text = serde_json::to_string(&a).unwrap();
            prop_assert_eq!(serde_json::from_str::<Template>(&text).unwrap(), a, "{}", format!("{text}"));
        }
    }
}
