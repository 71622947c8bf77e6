//! Two hosts with the same name and certificate, such as a disk and its copy: decides which is admitted.

use sluice_common::state::NodeState;
use sluice_common::wire::Hello;
use sluice_reasons::HelloRefusal;

use crate::context::Context;

/// Refuses a second host under the name of a node. A new boot of a node ends everything that ran on it, and one
/// connection of a node replaces another, so neither may come from a copy of the host. While the first is heard it
/// stays, because a rebooted host falls silent before. When it is silent, another machine is admitted only once the
/// first is lost: its steps may run until then.
pub(crate) fn check_name_conflict(ctx: &Context, hello: &Hello) -> Result<(), HelloRefusal> {
    let (node, after) = (&hello.node, ctx.settings().unreachable_after);
    let Some(known) = ctx.state().node(node) else {
        return Ok(());
    };
    let contact = ctx.contact(node);
    let linked = contact.filter(|contact| contact.session.is_some());
    let heard = linked.filter(|contact| ctx.now().since(contact.silent_since) < after);
    let same_boot = known.boot_id == hello.boot_id;
    if heard.is_some() && !same_boot {
        let node = node.clone();
        return Err(HelloRefusal::LinkedFromOtherBoot { node, after });
    }
    if heard.is_some_and(|contact| contact.state_dir != hello.state_dir) {
        let node = node.clone();
        return Err(HelloRefusal::LinkedFromOtherDirectory { node });
    }
    let (machine, before) = (&hello.inventory.machine, &known.inventory.machine);
    if !same_boot && machine.differs_from(before) && known.state != NodeState::Lost {
        return Err(HelloRefusal::OtherMachine {
            node: node.clone(),
            lost_after: ctx.settings().lost_after,
        });
    }
    Ok(())
}
