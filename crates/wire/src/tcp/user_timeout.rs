//! The value of the User Timeout Option (RFC 5482, section 3.3).

use core::num::NonZeroU32;

/// Set where the rest of the field counts minutes.
const GRANULARITY: u16 = 1 << 15;
/// Largest number of seconds or minutes.
const FIELD_MAX: u32 = (GRANULARITY - 1) as u32;
const MINUTE: u32 = 60;

/// A user timeout as the option tells it: seconds up to 32,767, and beyond that whole minutes, up to 22
/// days.
#[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub struct UserTimeout(NonZeroU32);

impl UserTimeout {
    /// The shortest that the option can tell and that is not shorter than `seconds`, or the longest of
    /// all; `None` for 0, which it cannot tell.
    pub fn from_seconds(seconds: u64) -> Option<Self> {
        let most = FIELD_MAX * MINUTE;
        let seconds = u32::try_from(seconds).map_or(most, |seconds| seconds.min(most));
        let told = match seconds {
            0..=FIELD_MAX => seconds,
            _ => seconds.next_multiple_of(MINUTE),
        };
        NonZeroU32::new(told).map(Self)
    }

    /// Its seconds.
    pub fn seconds(self) -> u32 {
        self.0.get()
    }

    /// What the option's field says; `None` for the reserved values.
    //= https://www.rfc-editor.org/rfc/rfc5482#section-3.3
    //# When set (G = 1), the time interval in the "User Timeout" field MUST be interpreted as
    //# minutes.
    //= https://www.rfc-editor.org/rfc/rfc5482#section-3.3
    //# Otherwise (G = 0), the time interval in the "User Timeout" field MUST be interpreted as
    //# seconds.
    //= https://www.rfc-editor.org/rfc/rfc5482#section-3.3
    //# It MUST be interpreted as a 15-bit unsigned integer.
    //= https://www.rfc-editor.org/rfc/rfc5482#section-3.4
    //# Current TCP implementations MUST NOT send it and MUST ignore it upon reception.
    pub(super) fn of_field(field: u16) -> Option<Self> {
        let number = u32::from(field & !GRANULARITY);
        let unit = if field & GRANULARITY != 0 { MINUTE } else { 1 };
        NonZeroU32::new(number * unit).map(Self)
    }

    /// The option's field.
    pub(super) fn field(self) -> u16 {
        // 15 bits either way, by how it was made.
        match self.seconds() {
            seconds @ 0..=FIELD_MAX => seconds as u16,
            seconds => GRANULARITY | (seconds / MINUTE) as u16,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::{SackBlock, SeqNumber, TcpOptions, Timestamps};
    use super::*;

    fn emitted(options: &TcpOptions) -> Vec<u8> {
        let mut out = [0; 40];
        let len = options.emit(&mut out).expect("room");
        out[..len].to_vec()
    }

    fn told(seconds: u64) -> Option<u16> {
        UserTimeout::from_seconds(seconds).map(UserTimeout::field)
    }

    //= https://www.rfc-editor.org/rfc/rfc5482#section-3.3
    //= type=test
    //# When set (G = 1), the time interval in the "User Timeout" field MUST be interpreted as
    //# minutes.
    //= https://www.rfc-editor.org/rfc/rfc5482#section-3.3
    //= type=test
    //# Otherwise (G = 0), the time interval in the "User Timeout" field MUST be interpreted as
    //# seconds.
    //= https://www.rfc-editor.org/rfc/rfc5482#section-3.3
    //= type=test
    //# It MUST be interpreted as a 15-bit unsigned integer.
    #[test]
    fn a_field_counts_seconds_or_minutes_in_15_bits() {
        let seconds = |field| UserTimeout::of_field(field).map(UserTimeout::seconds);
        assert_eq!(seconds(1), Some(1));
        assert_eq!(seconds(0x7fff), Some(32_767));
        assert_eq!(seconds(0x8001), Some(60));
        assert_eq!(seconds(0xffff), Some(32_767 * 60));
    }

    #[test]
    fn seconds_are_told_exactly_as_long_as_they_fit_and_then_rounded_up() {
        assert_eq!(told(1), Some(1));
        assert_eq!(told(32_767), Some(0x7fff));
        assert_eq!(told(32_768), Some(0x8000 | 547));
        assert_eq!(told(32_820), Some(0x8000 | 547));
        assert_eq!(told(32_821), Some(0x8000 | 548));
        assert_eq!(told(32_767 * 60), Some(0xffff));
        assert_eq!(told(u64::MAX), Some(0xffff));
    }

    //= https://www.rfc-editor.org/rfc/rfc5482#section-3.4
    //= type=test
    //# Current TCP implementations MUST NOT send it and MUST ignore it upon reception.
    #[test]
    fn nought_is_neither_told_nor_heeded() {
        assert_eq!(told(0), None);
        assert_eq!(UserTimeout::of_field(0), None);
        assert_eq!(UserTimeout::of_field(0x8000), None);
        // Nor does it take back what another option of the segment tells.
        let options = TcpOptions::parse(&[28, 4, 0, 9, 28, 4, 0, 0], false);
        assert_eq!(options.user_timeout, UserTimeout::from_seconds(9));
    }

    //= https://www.rfc-editor.org/rfc/rfc5482#section-3.3
    //= type=test
    //# This MUST be 28, i.e., the TCP option number [RFC0793] that has been assigned by IANA (see
    //# Section 7).
    //= https://www.rfc-editor.org/rfc/rfc5482#section-3.3
    //= type=test
    //# Length of the TCP option in octets [RFC0793]; its value MUST be 4.
    #[test]
    fn the_option_is_of_kind_28_and_4_bytes_long() {
        let options =
            TcpOptions { user_timeout: UserTimeout::from_seconds(925), ..TcpOptions::NONE };
        assert_eq!(emitted(&options), [28, 4, 0x03, 0x9d]);
        for syn in [false, true] {
            assert_eq!(TcpOptions::parse(&[28, 4, 0x03, 0x9d], syn), options);
        }
        for wrong in [&[28, 3, 1, 0][..], &[28, 5, 0, 1, 0, 0], &[28, 2, 0, 1], &[28, 4, 1]] {
            assert_eq!(TcpOptions::parse(wrong, false), TcpOptions::NONE, "{wrong:?}");
        }
    }

    #[test]
    fn the_other_options_come_first_and_may_take_all_the_room() {
        let block = SackBlock { left: SeqNumber(1), right: SeqNumber(2) };
        let timestamps = Some(Timestamps { value: 1, echo: 2 });
        let user_timeout = UserTimeout::from_seconds(60);
        for (blocks, timestamps, len, told) in [
            (4, None, 40, true),
            (2, timestamps, 36, true),
            (3, timestamps, 40, false),
            (4, timestamps, 40, false),
        ] {
            let sack = std::iter::repeat_n(block, blocks).collect();
            let options = TcpOptions { timestamps, sack, user_timeout, ..TcpOptions::NONE };
            assert_eq!((options.emitted_len(), options.tells_user_timeout()), (len, told));
            let bytes = emitted(&options);
            assert_eq!(bytes.len(), len);
            let again = TcpOptions::parse(&bytes, false);
            assert_eq!(again.user_timeout, user_timeout.filter(|_| told));
            assert_eq!(again.sack.len(), blocks.min(if timestamps.is_some() { 3 } else { 4 }));
        }
    }
}
