//! The link to the coordinator: greeting, welcome, loss, and renewal of leases. [`crate::link`] decides who
//! is obeyed.

use alloc::string::ToString;

use sluice_common::epoch::SealedEpoch;
use sluice_common::supervision::{BootMillis, ToSupervisor};
use sluice_common::time::Span;
use sluice_common::wire::Welcome;

use crate::core::Core;
use crate::input::{LinkId, Now};
use crate::link::{Link, LinkStage, LinkTerms, Rejection, check_epoch};
use crate::output::Output;
use crate::stop::later;

impl Core {
    pub(crate) fn on_dialled(&mut self, now: Now, link: LinkId) {
        self.link = Some(Link::new(link));
        self.greet(now);
    }

    /// Sends a hello if one is due and the supervisor has answered, or has been absent for too long.
    pub(crate) fn greet(&mut self, now: Now) {
        if !self.can_greet() {
            return;
        }
        let Some(Link {
            id,
            stage: stage @ LinkStage::Waiting,
            orders: _,
        }) = &mut self.link
        else {
            return;
        };
        *stage = LinkStage::Greeted { at: now.boot };
        let link = *id;
        let attempts = self.statuses().collect();
        let highest_epoch = self.highest_epoch.clone();
        let gpu_states = self.gpus.states();
        let supervisor = self.supervisor_state();
        self.outputs.push(Output::Greet {
            link,
            highest_epoch,
            attempts,
            gpu_states,
            said_at: now.boot,
            supervisor,
        });
    }

    pub(crate) fn on_welcomed(&mut self, link: LinkId, welcome: &Welcome) {
        if !self.is_current(link) {
            return;
        }
        match self.accept(welcome) {
            Ok(()) => self.report_endpoints(),
            Err(rejection) => self.reject(link, &rejection),
        }
    }

    pub(crate) fn accept(&mut self, welcome: &Welcome) -> Result<(), Rejection> {
        let Some(Link { stage, .. }) = &mut self.link else {
            return Ok(());
        };
        let greeted_at = match *stage {
            LinkStage::Waiting => return Err(Rejection::WelcomeBeforeHello),
            LinkStage::Greeted { at } => at,
            LinkStage::Welcomed { greeted_at, .. } => greeted_at,
        };
        let terms = LinkTerms::from(welcome);
        *stage = LinkStage::Welcomed { greeted_at, terms };
        self.obey(&welcome.epoch)?;
        // The welcome acknowledges the hello as it would a heartbeat.
        self.renew(greeted_at, terms.lease);
        Ok(())
    }

    /// Whether a welcome with this epoch may be obeyed; a higher epoch or another seal is stored first.
    pub(crate) fn obey(&mut self, epoch: &SealedEpoch) -> Result<(), Rejection> {
        check_epoch(self.highest_epoch(), &epoch.epoch)?;
        if self.highest_epoch.as_ref() != Some(epoch) {
            self.highest_epoch = Some(epoch.clone());
            self.outputs.push(Output::SaveEpoch(epoch.clone()));
        }
        Ok(())
    }

    /// Stops nothing, because the leases continue.
    pub(crate) fn on_link_lost(&mut self, link: LinkId) {
        if self.is_current(link) {
            self.link = None;
        }
    }

    pub(crate) fn reject(&mut self, link: LinkId, rejection: &Rejection) {
        self.link = None;
        let message = rejection.to_string();
        self.outputs.push(Output::Reject { link, message });
    }

    pub(crate) fn is_current(&self, link: LinkId) -> bool {
        self.link.as_ref().is_some_and(|current| current.id == link)
    }

    /// Terms of the current link, if it was welcomed.
    pub(crate) fn terms(&self) -> Option<LinkTerms> {
        match self.link.as_ref()?.stage {
            LinkStage::Waiting | LinkStage::Greeted { .. } => None,
            LinkStage::Welcomed { terms, .. } => Some(terms),
        }
    }

    pub(crate) fn on_heartbeat_acked(&mut self, now: Now, link: LinkId, sent: BootMillis) {
        if !self.is_current(link) {
            return;
        }
        if let Some(terms) = self.terms() {
            self.renew(sent.min(now.boot), terms.lease);
        }
    }

    /// Renews all leases: the coordinator has acknowledged a message that was sent at `sent`.
    pub(crate) fn renew(&mut self, sent: BootMillis, lease: Span) {
        let until = later(sent, lease);
        if self.lease_until.is_none_or(|known| known < until) {
            self.lease_until = Some(until);
            self.supervise(ToSupervisor::Renew { until });
        }
    }

    pub(crate) fn lease_passed(&self, now: Now) -> bool {
        self.lease_until.is_none_or(|until| until <= now.boot)
    }
}
