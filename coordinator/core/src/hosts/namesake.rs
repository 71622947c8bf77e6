//! Two hosts that bear one name and one certificate, such as a disk and its copy: which of them is let in.

use alloc::format;
use alloc::string::String;

use sluice_common::state::NodeState;
use sluice_common::wire::Hello;

use crate::context::Context;

/// A new boot of a node is taken for the end of everything that ran on it, and one connection of a node takes the place
/// of another: so neither must come from a copy of the host. While the first is heard it stays; a host that was booted
/// anew has fallen silent before. When it is not heard, another machine is let in only once the first is lost: until
/// then what runs there may run on.
pub(crate) fn check_namesake(ctx: &Context, hello: &Hello) -> Result<(), String> {
    let (node, after) = (&hello.node, ctx.settings().unreachable_after);
    let Some(known) = ctx.state().node(node) else {
        return Ok(());
    };
    let contact = ctx.contact(node);
    let linked = contact.filter(|contact| contact.session.is_some());
    let heard = linked.filter(|contact| ctx.now().since(contact.silent_since) < after);
    let same_boot = known.boot_id == hello.boot_id;
    if heard.is_some() && !same_boot {
        return Err(format!(
            "node `{node}` is linked already, from a host that was booted another time: give each host a name \
             and a certificate of its own, by joining this one anew; if it is the same host, which has just been booted, \
             it is let in once its earlier link has been silent for {after}"
        ));
    }
    if heard.is_some_and(|contact| contact.state_dir != hello.state_dir) {
        return Err(format!(
            "node `{node}` is linked already, from another state directory on the same machine: one of the two is a copy; \
             stop the agent of the one that is too many, or join it anew with an empty `state_dir` and a name of its own"
        ));
    }
    let (machine, before) = (&hello.inventory.machine, &known.inventory.machine);
    if !same_boot && machine.is_other_than(before) && known.state != NodeState::Lost {
        return Err(format!(
            "node `{node}` is known from another machine, whose steps may still run: if this one is a copy of its disk, \
             join it anew with an empty `state_dir` and a name of its own; if it replaces that machine, it is let in by \
             itself once that counts as lost, {} after it was heard last",
            ctx.settings().lost_after
        ));
    }
    Ok(())
}
