//! What the engine's process may still do once its ports are open.

use lab::failure::{Explain, Result};
use rustix::fs::{Gid, Uid};
use rustix::io::Errno;
use rustix::process::{getegid, geteuid, getgroups};
use rustix::thread::{
    CapabilitySet, CapabilitySets, capabilities, remove_capability_from_bounding_set,
    set_capabilities, set_keep_capabilities, set_no_new_privs, set_thread_groups,
    set_thread_res_gid, set_thread_res_uid,
};

use crate::users::User;

/// Becomes `user`, with `group` beside its own, and keeps of the capabilities no more than
/// `wanted`; programs that are started get no more either. Concerns the calling thread and those
/// that it starts later, so that it belongs before all others.
///
/// # Errors
/// When the kernel refuses: the engine is not to run with more than it should.
pub fn reduce(user: Option<User>, group: Option<u32>, wanted: CapabilitySet) -> Result<()> {
    let failed = "cannot give up privileges";
    let advice = "start the engine as root, or as the user it is to run as, without `user`";
    for capability in capabilities(None).explain(failed, advice)?.permitted.iter() {
        if !wanted.contains(capability) {
            // Without CAP_SETPCAP there is little in the set that could be had again.
            let _ = remove_capability_from_bounding_set(capability);
        }
    }
    if let Some(User { user, group: own }) = user {
        let groups: Vec<Gid> =
            [Some(own), group].into_iter().flatten().map(Gid::from_raw).collect();
        let (uid, gid) = (Uid::from_raw(user), Gid::from_raw(own));
        set_keep_capabilities(true).explain(failed, advice)?;
        match set_thread_groups(&groups) {
            // A service manager has made us this user already, and given us no right to do so.
            Err(Errno::PERM) if is_already(uid, &groups) => {}
            other => other.explain(failed, advice)?,
        }
        set_thread_res_gid(gid, gid, gid).explain(failed, advice)?;
        set_thread_res_uid(uid, uid, uid).explain(failed, advice)?;
        set_keep_capabilities(false).explain(failed, advice)?;
    }
    set_no_new_privs(true).explain(failed, advice)?;
    let kept = capabilities(None).explain(failed, advice)?.permitted & wanted;
    let sets = CapabilitySets { effective: kept, permitted: kept, inheritable: kept };
    set_capabilities(None, sets).explain(failed, advice)
}

/// Whether the process is `user` and in all of `groups`, its own first.
fn is_already(user: Uid, groups: &[Gid]) -> bool {
    let own = getegid();
    let others = getgroups().unwrap_or_default();
    geteuid() == user
        && groups.first() == Some(&own)
        && groups.iter().all(|group| *group == own || others.contains(group))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_is_the_user_already_needs_no_right_to_become_it() {
        if !geteuid().is_root() {
            return;
        }
        let nobody = User { user: 65534, group: 65534 };
        let other = User { user: 65533, ..nobody };
        let reduced = std::thread::spawn(move || {
            reduce(Some(nobody), None, CapabilitySet::empty()).expect("root may");
            let again = reduce(Some(nobody), None, CapabilitySet::empty());
            (again.is_ok(), reduce(Some(other), None, CapabilitySet::empty()).is_err())
        });
        assert_eq!(reduced.join().expect("no panic"), (true, true));
    }
}
