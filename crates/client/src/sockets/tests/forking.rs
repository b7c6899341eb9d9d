//! Forked children.

use super::super::heritage::Inherited;
use super::*;

#[test]
fn a_forked_child_keeps_fresh_sockets_and_listeners_and_closes_the_layers_numbers() {
    let (sockets, kernel) = layer();
    stream(sockets, 3);
    assert_eq!(sockets.listen(3, 16), Verdict::Done(Ok(())));
    sockets.epoll_created(4);
    sockets.hide(sockets.era().unwrap(), 901);
    kernel.taken();
    sockets.forked();
    assert!(sockets.tracks(3) && sockets.tracks(4) && !sockets.tracks(901));
    assert_eq!(kernel.taken(), ["close 901"]);
}

#[test]
fn an_inherited_connection_is_counted_once_however_often_it_is_used() {
    let (sockets, _) = layer();
    let era = sockets.era().unwrap();
    assert!(era.table.put(3, Entry::Foreign(Inherited::default()), 0).is_ok());
    for _ in 0..3 {
        assert!(matches!(sockets.called(3), Err(Errno::BADF)));
    }
    assert_eq!(sockets.census().map(|line| line.count).sum::<u64>(), 1);
}

#[test]
fn a_child_of_several_threads_closes_the_layers_numbers_and_leaves_the_rest_to_the_kernel() {
    let (sockets, kernel) = layer();
    stream(sockets, 3);
    sockets.hide(sockets.era().unwrap(), 901);
    kernel.taken();
    sockets.forked_among_threads();
    assert!(sockets.era().is_none(), "nothing is built anew");
    assert!(!sockets.tracks(3) && !sockets.tracks(901));
    assert_eq!(kernel.taken(), ["close 901"]);
}

/// A daemon's set, made before its fork, told nothing of the engine and what its parent's layer had put there.
#[test]
fn a_forked_child_follows_its_listeners_in_its_sets_and_closes_them_for_itself_alone() {
    let (sockets, kernel) = layer();
    stream(sockets, 3);
    assert_eq!(sockets.listen(3, 16), Verdict::Done(Ok(())));
    sockets.epoll_created(4);
    sockets.duplicated(4, 5);
    let event = EpollEvent { events: libc::EPOLLIN as u32, data: 7 };
    let add = libc::EPOLL_CTL_ADD;
    assert_eq!(sockets.epoll_ctl(4, add, 3, event), Verdict::Done(Ok(())));
    sockets.forked();
    let [set, copy] = [4, 5].map(|fd| sockets.epoll(fd).unwrap());
    assert!(Arc::ptr_eq(&set, &copy));
    let mut told = [EpollEvent::default(); 2];
    let waited = sockets.epoll_wait(5, &mut told, Some(Duration::ZERO), None);
    assert_eq!(waited, Verdict::Done(Ok(0)), "and not the kernel's");
    assert_eq!(sockets.epoll_ctl(4, add, 3, event), Verdict::Done(Err(Errno::EXIST)));
    let listener = sockets.socket(3).unwrap();
    assert_eq!(listener.interests().len(), 1);
    kernel.taken();
    assert_eq!(sockets.closing(3), Verdict::Kernel);
    assert_eq!(kernel.taken(), Vec::<String>::new(), "the parent's interest stays");
}
