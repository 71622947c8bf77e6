//! Renders the cluster's settings.

use jiff::Timestamp;
use sluice_common::api::ClusterView;
use sluice_common::id::PoolName;

use super::document::{self, ApplyDocument};
use super::listed::Listed;
use super::table::{Cell, Column};
use super::{or_dash, safe};

impl Listed for ClusterView {
    const KIND: &'static str = "cluster";
    const COLUMNS: &'static [Column] = &[
        Column::new("CPU POOL", 9).text(),
        Column::new("GPU POOL", 8).text(),
        Column::new("SUBJECTS", 7).text(),
        Column::new("VERSION", 3).wide(),
    ];

    fn document(&self) -> Option<ApplyDocument> {
        Some(document::cluster(self))
    }

    fn name(&self) -> String {
        Self::KIND.to_owned()
    }

    fn cells(&self, _now: Timestamp) -> Vec<Cell> {
        let pool = |pool: &Option<PoolName>| or_dash(pool.as_ref().map(PoolName::as_str)).into();
        let subjects = self.subjects.iter();
        let subjects = subjects.flat_map(|(who, its)| {
            let of = |kind: &str, pool: &Option<PoolName>| {
                Some(format!("{}{kind}={}", safe(who.as_str()), pool.as_ref()?))
            };
            [
                of("", &its.pool),
                of("/cpu", &its.cpu),
                of("/gpu", &its.gpu),
            ]
        });
        let subjects: Vec<String> = subjects.flatten().collect();
        vec![
            pool(&self.default_pool.cpu),
            pool(&self.default_pool.gpu),
            or_dash(Some(&subjects.join(","))).into(),
            self.version.to_string().into(),
        ]
    }
}

#[cfg(test)]
mod tests {
    use super::super::listed::table;
    use super::super::step::tests::now;
    use super::*;
    use crate::out::Out;

    #[test]
    fn it_is_told_where_steps_go() {
        let cluster: ClusterView = serde_json::from_value(serde_json::json!({
            "default_pool": {"gpu": "training"}, "subjects": {"dev": {"pool": "desk"}, "prod": {"pool": "training"}},
            "version": 3
        }))
        .unwrap();
        assert_eq!(
            table(&[cluster], now(), Out::plain()),
            "CPU POOL  GPU POOL  SUBJECTS\n\
             -         training  dev=desk,prod=training\n"
        );
    }
}
