//! Times and durations, as people read and write them.

use std::time::Duration;

const SECOND: u64 = 1_000;
const MINUTE: u64 = 60 * SECOND;
const HOUR: u64 = 60 * MINUTE;
const DAY: u64 = 24 * HOUR;

/// Units that durations are written in.
const UNITS: [(&str, u64); 6] =
    [("w", 7 * DAY), ("d", DAY), ("h", HOUR), ("ms", 1), ("m", MINUTE), ("s", SECOND)];

/// Reads `90s`, `2h`, `1d12h`, `500ms`.
///
/// # Errors
/// If the text is no duration; says which forms are.
pub fn parse_duration(text: &str) -> Result<Duration, String> {
    let wrong = || format!("'{text}' is no duration; write 90s, 15m, 2h, 7d or 1d12h");
    let mut rest = text.trim();
    if rest.is_empty() {
        return Err(wrong());
    }
    let mut total: u64 = 0;
    while !rest.is_empty() {
        let digits = rest.len() - rest.trim_start_matches(|c: char| c.is_ascii_digit()).len();
        let number: u64 = rest[..digits].parse().map_err(|_| wrong())?;
        rest = &rest[digits..];
        let (unit, length) = UNITS.into_iter().find(|(unit, _)| rest.starts_with(unit)).ok_or_else(wrong)?;
        rest = &rest[unit.len()..];
        total = number.checked_mul(length).and_then(|part| total.checked_add(part)).ok_or_else(wrong)?;
    }
    Ok(Duration::from_millis(total))
}

/// A moment, given as one or as an age: `2h`, `2026-11-17`, `2026-11-17T18:30:00Z`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Since {
    /// As long ago as this.
    Ago(Duration),
    /// At this time, in milliseconds since the epoch.
    At(u64),
}

impl Since {
    /// Reads a moment.
    ///
    /// # Errors
    /// If the text is neither a duration nor a time in UTC.
    pub fn parse(text: &str) -> Result<Self, String> {
        if let Ok(duration) = parse_duration(text) {
            return Ok(Self::Ago(duration));
        }
        let wrong = || format!("'{text}' is neither a duration (2h, 7d) nor a time (2026-11-17T18:30:00Z)");
        parse_moment(text).map(Self::At).ok_or_else(wrong)
    }

    /// The moment in milliseconds since the epoch.
    pub fn at_ms(self, now_ms: u64) -> u64 {
        match self {
            Self::Ago(duration) => {
                now_ms.saturating_sub(u64::try_from(duration.as_millis()).unwrap_or(u64::MAX))
            }
            Self::At(moment) => moment,
        }
    }
}

/// Reads `2026-11-17`, `2026-11-17T18:30` or `2026-11-17T18:30:05.250Z`; a blank may stand for the `T`.
fn parse_moment(text: &str) -> Option<u64> {
    let text = text.trim().trim_end_matches(['Z', 'z']);
    let (date, time) = text.split_once(['T', 't', ' ']).unwrap_or((text, "00:00:00"));
    let mut parts = date.splitn(3, '-').map(|part| part.parse::<u64>().ok());
    let (year, month, day) = (parts.next()??, parts.next()??, parts.next()??);
    let mut parts = time.splitn(3, ':');
    let hour: u64 = parts.next()?.parse().ok()?;
    let minute: u64 = parts.next()?.parse().ok()?;
    let (second, ms) = match parts.next() {
        None => (0, 0),
        Some(seconds) => {
            let (whole, fraction) = seconds.split_once('.').unwrap_or((seconds, "0"));
            let ms: String = fraction.chars().chain("00".chars()).take(3).collect();
            (whole.parse::<u64>().ok()?, ms.parse::<u64>().ok()?)
        }
    };
    let is_possible = (1970..=9999).contains(&year)
        && (1..=12).contains(&month)
        && (1..=days_in(year, month)).contains(&day)
        && hour < 24
        && minute < 60
        && second < 60;
    let days = days_before(year, month).checked_add(day.checked_sub(1)?)?;
    is_possible.then(|| days * DAY + hour * HOUR + minute * MINUTE + second * SECOND + ms)
}

/// Writes a time in UTC: `2026-11-17 18:30:05`.
pub fn moment(ms: u64) -> String {
    let (mut year, mut days) = (1970, ms / DAY);
    while days >= days_in_year(year) {
        days -= days_in_year(year);
        year += 1;
        if year > 9999 {
            return "after 9999".to_string();
        }
    }
    let mut month = 1;
    while days >= days_in(year, month) {
        days -= days_in(year, month);
        month += 1;
    }
    let time = ms % DAY;
    let (hour, minute, second) = (time / HOUR, time % HOUR / MINUTE, time % MINUTE / SECOND);
    format!("{year:04}-{month:02}-{:02} {hour:02}:{minute:02}:{second:02}", days + 1)
}

fn is_leap(year: u64) -> bool {
    year.is_multiple_of(4) && (!year.is_multiple_of(100) || year.is_multiple_of(400))
}

fn days_in_year(year: u64) -> u64 {
    if is_leap(year) { 366 } else { 365 }
}

fn days_in(year: u64, month: u64) -> u64 {
    match month {
        2 if is_leap(year) => 29,
        2 => 28,
        4 | 6 | 9 | 11 => 30,
        _ => 31,
    }
}

fn days_before(year: u64, month: u64) -> u64 {
    let years: u64 = (1970..year.min(10_000)).map(days_in_year).sum();
    years + (1..month).map(|month| days_in(year, month)).sum::<u64>()
}

/// Writes a duration with its two largest units: `1.2s`, `3m 20s`, `2h 5m`, `4d 3h`.
pub fn duration(ms: u64) -> String {
    let two = |large: u64, unit: &str, small: u64, smaller: &str| match small {
        0 => format!("{large}{unit}"),
        _ => format!("{large}{unit} {small}{smaller}"),
    };
    match ms {
        0..SECOND => format!("{ms}ms"),
        SECOND..10_000 => format!("{}.{}s", ms / SECOND, ms % SECOND / 100),
        10_000..MINUTE => format!("{}s", ms / SECOND),
        MINUTE..HOUR => two(ms / MINUTE, "m", ms % MINUTE / SECOND, "s"),
        HOUR..DAY => two(ms / HOUR, "h", ms % HOUR / MINUTE, "m"),
        _ => two(ms / DAY, "d", ms % DAY / HOUR, "h"),
    }
}

/// Writes how long ago something was, in one unit: `now`, `12s`, `3m`, `2h`, `4d`.
pub fn ago(then_ms: u64, now_ms: u64) -> String {
    match now_ms.saturating_sub(then_ms) {
        0..SECOND => "now".to_string(),
        age @ SECOND..MINUTE => format!("{}s", age / SECOND),
        age @ MINUTE..HOUR => format!("{}m", age / MINUTE),
        age @ HOUR..DAY => format!("{}h", age / HOUR),
        age => format!("{}d", age / DAY),
    }
}

/// Writes a time in UTC, and how long ago it was.
pub fn since(then_ms: u64, now_ms: u64) -> String {
    match ago(then_ms, now_ms).as_str() {
        "now" => format!("{} UTC (now)", moment(then_ms)),
        age => format!("{} UTC ({age} ago)", moment(then_ms)),
    }
}

/// Writes how long it is until something: `in 12s`, `overdue by 3s`.
pub fn until(then_ms: u64, now_ms: u64) -> String {
    match then_ms >= now_ms {
        true => format!("in {}", duration(then_ms - now_ms)),
        false => format!("overdue by {}", duration(now_ms - then_ms)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_are_read_as_people_write_them() {
        let ms = |text| parse_duration(text).map(|duration| duration.as_millis());
        assert_eq!(ms("500ms"), Ok(500));
        assert_eq!(ms("90s"), Ok(90_000));
        assert_eq!(ms("15m"), Ok(900_000));
        assert_eq!(ms("1d12h"), Ok(129_600_000));
        assert_eq!(ms("2w"), Ok(1_209_600_000));
        for wrong in ["", "h", "2", "2x", "-2h", "2h3", "99999999999999999999d", "18446744073709551615w"] {
            assert!(ms(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn moments_are_written_and_read_alike() {
        for (ms, text) in [
            (0, "1970-01-01 00:00:00"),
            (951_782_400_000, "2000-02-29 00:00:00"),
            (1_757_400_000_000, "2025-09-09 06:40:00"),
            (4_107_542_399_000, "2100-02-28 23:59:59"),
        ] {
            assert_eq!(moment(ms), text);
            assert_eq!(Since::parse(text), Ok(Since::At(ms)));
            assert_eq!(Since::parse(&text.replace(' ', "T")), Ok(Since::At(ms)));
        }
        assert_eq!(Since::parse("2025-09-09"), Ok(Since::At(1_757_376_000_000)));
        assert_eq!(Since::parse("2025-09-09T06:40:00.25Z"), Ok(Since::At(1_757_400_000_250)));
        assert_eq!(Since::parse("2h").map(|since| since.at_ms(7_200_001)), Ok(1));
        for wrong in ["2025-13-01", "2025-02-29", "2025-09-09T25:00", "yesterday", "2025"] {
            assert!(Since::parse(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn ages_have_one_unit_and_durations_two() {
        assert_eq!(ago(10, 900), "now");
        assert_eq!(ago(0, 59_999), "59s");
        assert_eq!(ago(0, 7_200_000), "2h");
        assert_eq!(ago(5_000, 1_000), "now");
        assert_eq!(duration(1_250), "1.2s");
        assert_eq!(duration(200_000), "3m 20s");
        assert_eq!(duration(7_200_000), "2h");
        assert_eq!(duration(356_400_000), "4d 3h");
        assert_eq!(until(2_000, 500), "in 1.5s");
        assert_eq!(until(500, 2_000), "overdue by 1.5s");
    }
}
