//! Queries and settings of a kernel interface, by the classic ioctls, which need no message
//! building and exist everywhere.

use std::fs;
use std::io;
use std::mem;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::path::Path;

use rustix::thread::{LinkNameSpaceType, UnshareFlags, move_into_link_name_space};
use wire::MacAddr;

use crate::open::{OpenError, OpenErrorKind};
use crate::spec::PortSpec;

/// Runs `work` in the network namespace that the port names: on a thread of its own, because a
/// namespace is per thread.
pub(crate) fn in_namespace<T: Send>(
    spec: &PortSpec,
    work: impl FnOnce() -> Result<T, OpenError> + Send,
) -> Result<T, OpenError> {
    let Some(name) = &spec.netns else { return work() };
    let label = spec.label();
    let path = Path::new("/run/netns").join(name);
    let namespace = fs::File::open(&path).map_err(|why| {
        OpenError::new(
            OpenErrorKind::NotFound,
            format!(
                "cannot open {} for {label}: {why}; \"ip netns add {name}\" makes the namespace, \
                 \"ip netns list\" shows those that exist",
                path.display()
            ),
        )
    })?;
    std::thread::scope(|scope| {
        let entered = scope.spawn(move || {
            move_into_link_name_space(
                std::os::fd::AsFd::as_fd(&namespace),
                Some(LinkNameSpaceType::Network),
            )
            .map_err(|why| {
                OpenError::system(&label, "enter the namespace", "CAP_SYS_ADMIN", &why.into())
            })?;
            work()
        });
        match entered.join() {
            Ok(result) => result,
            Err(panic) => std::panic::resume_unwind(panic),
        }
    })
}

/// An interface by its name, in the namespace of the calling thread.
pub(crate) struct Link {
    socket: OwnedFd,
    name: [libc::c_char; libc::IFNAMSIZ],
    text: String,
}

impl Link {
    /// Prepares queries; the interface need not exist yet.
    pub(crate) fn new(name: &str) -> io::Result<Self> {
        // SAFETY: socket takes no pointers.
        let fd = unsafe { libc::socket(libc::AF_INET, libc::SOCK_DGRAM | libc::SOCK_CLOEXEC, 0) };
        if fd < 0 {
            return Err(io::Error::last_os_error());
        }
        // SAFETY: the descriptor is new and nobody else's.
        let socket = unsafe { OwnedFd::from_raw_fd(fd) };
        Ok(Self { socket, name: name_field(name)?, text: name.to_owned() })
    }

    /// The interface with this index, whatever its current name.
    pub(crate) fn with_index(index: u32) -> io::Result<Self> {
        let mut link = Self::new("")?;
        let mut request = link.request();
        request.ifr_ifru.ifru_ifindex = index as libc::c_int;
        link.ioctl(libc::SIOCGIFNAME, &mut request)?;
        link.name = request.ifr_name;
        link.text =
            link.name.iter().take_while(|char| **char != 0).map(|c| *c as u8 as char).collect();
        Ok(link)
    }

    fn request(&self) -> libc::ifreq {
        // SAFETY: all-zero is a value of this plain C struct.
        let mut request: libc::ifreq = unsafe { mem::zeroed() };
        request.ifr_name = self.name;
        request
    }

    fn ioctl(&self, code: libc::Ioctl, request: &mut libc::ifreq) -> io::Result<()> {
        // SAFETY: every request used here reads and writes one ifreq, which lives on.
        let result = unsafe { libc::ioctl(self.socket.as_raw_fd(), code, request) };
        if result < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
    }

    pub(crate) fn index(&self) -> io::Result<u32> {
        let mut request = self.request();
        self.ioctl(libc::SIOCGIFINDEX, &mut request)?;
        // SAFETY: the kernel filled this member of the union.
        let index = unsafe { request.ifr_ifru.ifru_ifindex };
        u32::try_from(index).map_err(|_| io::Error::from_raw_os_error(libc::ENODEV))
    }

    pub(crate) fn mac(&self) -> io::Result<MacAddr> {
        let mut request = self.request();
        self.ioctl(libc::SIOCGIFHWADDR, &mut request)?;
        // SAFETY: the kernel filled this member of the union.
        let address = unsafe { request.ifr_ifru.ifru_hwaddr };
        if address.sa_family != libc::ARPHRD_ETHER {
            return Err(io::Error::other(
                "the interface is not an Ethernet interface, which a port needs",
            ));
        }
        let mut mac = [0; 6];
        for (byte, &raw) in mac.iter_mut().zip(&address.sa_data) {
            *byte = raw as u8;
        }
        Ok(MacAddr(mac))
    }

    pub(crate) fn set_mac(&self, mac: MacAddr) -> io::Result<()> {
        let mut request = self.request();
        // SAFETY: all-zero is a value of this plain C struct.
        let mut address: libc::sockaddr = unsafe { mem::zeroed() };
        address.sa_family = libc::ARPHRD_ETHER;
        for (to, from) in address.sa_data.iter_mut().zip(mac.0) {
            *to = from as libc::c_char;
        }
        request.ifr_ifru.ifru_hwaddr = address;
        self.ioctl(libc::SIOCSIFHWADDR, &mut request)
    }

    pub(crate) fn mtu(&self) -> io::Result<u16> {
        let mut request = self.request();
        self.ioctl(libc::SIOCGIFMTU, &mut request)?;
        // SAFETY: the kernel filled this member of the union.
        let mtu = unsafe { request.ifr_ifru.ifru_mtu };
        Ok(u16::try_from(mtu).unwrap_or(u16::MAX))
    }

    /// Name of the interface's driver, e.g. `veth`.
    pub(crate) fn driver(&self) -> Option<String> {
        /// `struct ethtool_drvinfo` (linux/ethtool.h).
        #[repr(C)]
        struct DriverInfo {
            command: u32,
            driver: [u8; 32],
            rest: [u8; 160],
        }
        const GET_DRIVER_INFO: u32 = 3;
        let mut info = DriverInfo { command: GET_DRIVER_INFO, driver: [0; 32], rest: [0; 160] };
        self.ask_ethtool(&mut info)?;
        let name = info.driver.split(|byte| *byte == 0).next()?;
        String::from_utf8(name.to_vec()).ok().filter(|name| !name.is_empty())
    }

    /// Whether VLAN tags are stripped from frames before an XDP program sees them. A card reports
    /// it; over veth they are metadata of the frame, as the peer's kernel chooses.
    pub(crate) fn strips_vlan(&self, driver: Option<&str>) -> bool {
        const GET_FLAGS: u32 = 0x25;
        const FLAG_RXVLAN: u32 = 1 << 8;
        let of_card = self.ethtool(GET_FLAGS).is_none_or(|flags| flags & FLAG_RXVLAN != 0);
        of_card || driver == Some("veth")
    }

    /// Whether it accepts frames of up to 64 KiB to be segmented.
    pub(crate) fn has_tso(&self) -> bool {
        const GET_TSO: u32 = 0x1e;
        self.ethtool(GET_TSO).unwrap_or(0) != 0
    }

    /// Receive queues, current and maximum. `None` if the driver has a fixed number.
    pub(crate) fn channels(&self) -> Option<(u32, u32)> {
        /// `struct ethtool_channels` (linux/ethtool.h).
        #[repr(C)]
        #[derive(Default)]
        struct Channels {
            command: u32,
            rx_max: u32,
            tx_max: u32,
            other_max: u32,
            combined_max: u32,
            rx: u32,
            tx: u32,
            other: u32,
            combined: u32,
        }
        const GET_CHANNELS: u32 = 0x3c;
        let mut channels = Channels { command: GET_CHANNELS, ..Channels::default() };
        self.ask_ethtool(&mut channels)?;
        let Channels { rx, combined, rx_max, combined_max, .. } = channels;
        let now = rx.saturating_add(combined);
        Some((now, rx_max.saturating_add(combined_max).max(now)))
    }

    /// The result of an ethtool query with a single number.
    pub(crate) fn ethtool(&self, command: u32) -> Option<u32> {
        /// `struct ethtool_value` (linux/ethtool.h).
        #[repr(C)]
        struct Value {
            command: u32,
            data: u32,
        }
        let mut value = Value { command, data: 0 };
        self.ask_ethtool(&mut value)?;
        Some(value.data)
    }

    /// Makes an ethtool query: a plain C struct that begins with the command's number and can hold
    /// any bytes as the result.
    fn ask_ethtool<T>(&self, question: &mut T) -> Option<()> {
        const SIOCETHTOOL: libc::Ioctl = 0x8946;
        let mut request = self.request();
        request.ifr_ifru.ifru_data = std::ptr::from_mut(question).cast();
        self.ioctl(SIOCETHTOOL, &mut request).ok()
    }

    pub(crate) fn set_mtu(&self, mtu: u16) -> io::Result<()> {
        let mut request = self.request();
        request.ifr_ifru.ifru_mtu = libc::c_int::from(mtu);
        self.ioctl(libc::SIOCSIFMTU, &mut request)
    }

    fn flags(&self) -> io::Result<libc::c_short> {
        let mut request = self.request();
        self.ioctl(libc::SIOCGIFFLAGS, &mut request)?;
        // SAFETY: the kernel filled this member of the union.
        Ok(unsafe { request.ifr_ifru.ifru_flags })
    }

    /// Sets flags such as IFF_UP, and keeps the others.
    pub(crate) fn raise(&self, flags: libc::c_int) -> io::Result<()> {
        let before = self.flags()?;
        let after = before | flags as libc::c_short;
        if before == after {
            return Ok(());
        }
        let mut request = self.request();
        request.ifr_ifru.ifru_flags = after;
        self.ioctl(libc::SIOCSIFFLAGS, &mut request)
    }

    /// Whether the kernel has an IPv4 address on the interface.
    pub(crate) fn has_address(&self) -> io::Result<bool> {
        let mut request = self.request();
        match self.ioctl(libc::SIOCGIFADDR, &mut request) {
            Ok(()) => Ok(true),
            Err(why) if why.raw_os_error() == Some(libc::EADDRNOTAVAIL) => Ok(false),
            Err(why) => Err(why),
        }
    }

    /// Writes a setting of the interface below `/proc/sys/net`, e.g. `ipv6`, `disable_ipv6`.
    /// A kernel without the protocol has no such file, and nothing to set.
    pub(crate) fn set_sysctl(&self, family: &str, key: &str, value: &str) -> io::Result<()> {
        // /proc/sys/net is that of the calling thread's namespace.
        let path = format!("/proc/sys/net/{family}/conf/{}/{key}", self.text);
        if fs::read_to_string(&path).is_ok_and(|now| now.trim() == value) {
            return Ok(());
        }
        match fs::write(&path, value) {
            Err(why) if why.kind() == io::ErrorKind::NotFound => Ok(()),
            other => other,
        }
    }

    /// Lets a kernel thread poll the device (threaded NAPI). `/sys` shows the network namespace it was
    /// mounted in, so it is mounted anew for a thread of its own; where that is not allowed,
    /// `other_namespace` tells whether it must be another one.
    pub(crate) fn set_threaded(&self, other_namespace: bool) -> io::Result<()> {
        let write = || {
            // SAFETY: this thread alone leaves the shared mount namespace and working
            // directory; it ends with the writing, and holds no descriptors that the flag would affect.
            let left =
                unsafe { rustix::thread::unshare_unsafe(UnshareFlags::NEWNS | UnshareFlags::FS) };
            match left.map_err(io::Error::from).and_then(|()| mount_own_sysfs()) {
                Err(why) if other_namespace => return Err(why),
                _ => {}
            }
            fs::write(format!("/sys/class/net/{}/threaded", self.text), "1")
        };
        std::thread::scope(|scope| {
            scope.spawn(write).join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))
        })
    }
}

/// Whether the interface with this index, in the namespace of the socket, is up and has a carrier;
/// `None` if there is none, or its driver does not report it. IFF_RUNNING would follow up to a
/// second later.
pub(crate) fn has_carrier(socket: &OwnedFd, index: u32) -> Option<bool> {
    /// `struct ethtool_value` (linux/ethtool.h).
    #[repr(C)]
    struct Value {
        command: u32,
        data: u32,
    }
    const SIOCETHTOOL: libc::Ioctl = 0x8946;
    const GET_LINK: u32 = 0x0a;
    // SAFETY: all-zero is a value of this plain C struct.
    let mut request: libc::ifreq = unsafe { mem::zeroed() };
    let mut value = Value { command: GET_LINK, data: 0 };
    let ask = |code, request: &mut libc::ifreq| {
        // SAFETY: both requests read and write one ifreq, and the value behind its pointer, which
        // live on.
        unsafe { libc::ioctl(socket.as_raw_fd(), code, request) >= 0 }
    };
    request.ifr_ifru.ifru_ifindex = index as libc::c_int;
    if !ask(libc::SIOCGIFNAME, &mut request) {
        return None;
    }
    request.ifr_ifru.ifru_data = (&raw mut value).cast();
    ask(SIOCETHTOOL, &mut request).then_some(value.data != 0)
}

fn mount_own_sysfs() -> io::Result<()> {
    // SAFETY: the strings are constants that end in zero, and the null pointers are allowed.
    let private = unsafe {
        libc::mount(
            c"none".as_ptr(),
            c"/".as_ptr(),
            std::ptr::null(),
            libc::MS_REC | libc::MS_PRIVATE,
            std::ptr::null(),
        )
    };
    if private < 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: as above.
    let mounted = unsafe {
        libc::mount(c"sysfs".as_ptr(), c"/sys".as_ptr(), c"sysfs".as_ptr(), 0, std::ptr::null())
    };
    if mounted < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
}

/// A name as `ifreq` holds it.
pub(crate) fn name_field(name: &str) -> io::Result<[libc::c_char; libc::IFNAMSIZ]> {
    let mut field = [0; libc::IFNAMSIZ];
    if name.len() >= field.len() || name.contains('\0') {
        return Err(io::Error::from_raw_os_error(libc::ENODEV));
    }
    for (to, from) in field.iter_mut().zip(name.bytes()) {
        *to = from as libc::c_char;
    }
    Ok(field)
}
