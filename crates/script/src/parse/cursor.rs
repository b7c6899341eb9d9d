//! A place in the text.

/// Reads on from a place.
pub struct Cursor<'a> {
    text: &'a str,
    at: usize,
}

impl<'a> Cursor<'a> {
    /// At the beginning.
    pub fn new(text: &'a str) -> Self {
        Self { text, at: 0 }
    }

    fn rest(&self) -> &'a str {
        self.text.get(self.at..).unwrap_or_default()
    }

    /// Whether nothing is left.
    pub fn is_done(&self) -> bool {
        self.rest().is_empty()
    }

    /// Number of the line, from 1.
    pub fn line(&self) -> usize {
        1 + self.text.as_bytes().iter().take(self.at).filter(|byte| **byte == b'\n').count()
    }

    /// Goes past white space.
    pub fn skip_space(&mut self) {
        let rest = self.rest();
        self.at += rest.len() - rest.trim_start().len();
    }

    /// Goes past white space of this line.
    pub fn skip_blanks(&mut self) {
        let rest = self.rest();
        self.at += rest.len() - rest.trim_start_matches([' ', '\t']).len();
    }

    /// Whether `what` comes next.
    pub fn sees(&self, what: &str) -> bool {
        self.rest().starts_with(what)
    }

    /// Whether a letter comes next.
    pub fn sees_letter(&self) -> bool {
        self.rest().starts_with(|c: char| c.is_ascii_alphabetic())
    }

    /// Goes past `what` if it comes next.
    pub fn take(&mut self, what: &str) -> bool {
        let seen = self.sees(what);
        if seen {
            self.at += what.len();
        }
        seen
    }

    /// Goes past `what`, or says that it is missing.
    pub fn need(&mut self, what: &str) -> Result<(), String> {
        self.skip_space();
        if self.take(what) {
            Ok(())
        } else {
            Err(format!("{what} is missing before {}", self.near()))
        }
    }

    /// What comes next, for a sentence.
    pub fn near(&self) -> String {
        let next: String = self.rest().chars().take(20).take_while(|c| *c != '\n').collect();
        if next.is_empty() { "the end of the line".into() } else { format!("`{next}`") }
    }

    /// What comes before `end`, which is passed.
    pub fn until(&mut self, end: &str) -> Option<&'a str> {
        let rest = self.rest();
        let length = rest.find(end)?;
        self.at += length + end.len();
        rest.get(..length)
    }

    /// Letters, digits and underscores.
    pub fn word(&mut self) -> &'a str {
        self.run(|c| c.is_ascii_alphanumeric() || c == '_')
    }

    /// The first characters of a kind.
    pub fn run(&mut self, wanted: impl Fn(char) -> bool) -> &'a str {
        let rest = self.rest();
        let length = rest.find(|c| !wanted(c)).unwrap_or(rest.len());
        self.at += length;
        rest.get(..length).unwrap_or_default()
    }

    /// A number, decimal or with 0x.
    pub fn number(&mut self) -> Result<i64, String> {
        self.skip_blanks();
        let sign = if self.take("-") { -1 } else { 1 };
        let near = self.near();
        let word = self.word();
        let read = match word.strip_prefix("0x") {
            Some(digits) => i64::from_str_radix(digits, 16),
            None => word.parse(),
        };
        read.map(|number| sign * number).map_err(|_| format!("a number is missing at {near}"))
    }

    /// A number of some width.
    pub fn sized<T: TryFrom<i64>>(&mut self) -> Result<T, String> {
        let number = self.number()?;
        T::try_from(number).map_err(|_| format!("{number} is out of range"))
    }

    /// Seconds with fractions, as nanoseconds.
    pub fn seconds(&mut self) -> Result<u64, String> {
        let near = self.near();
        let mut text = self.run(|c| c.is_ascii_digit());
        let mut fraction = "";
        // Three dots are a range.
        if self.sees(".") && !self.sees("..") {
            self.take(".");
            fraction = self.run(|c| c.is_ascii_digit());
        }
        if text.is_empty() && fraction.is_empty() {
            return Err(format!("a time is missing at {near}"));
        }
        if text.is_empty() {
            text = "0";
        }
        let whole: u64 = text.parse().map_err(|_| format!("{text} is too long"))?;
        let digits = format!("{fraction:0<9}");
        let nanos: u64 = digits.get(..9).unwrap_or("0").parse().unwrap_or(0);
        whole
            .checked_mul(1_000_000_000)
            .and_then(|ns| ns.checked_add(nanos))
            .ok_or_else(|| format!("{text} seconds are too many"))
    }
}
