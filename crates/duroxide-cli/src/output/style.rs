//! Colours, where the reader wants them.

use std::borrow::Cow;

use duroxide::InstanceState;

use super::Colours;

/// How to colour a text.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Paint {
    /// Stands out without a colour.
    Bold,
    /// Steps back.
    Dim,
    /// Has failed.
    Red,
    /// Is well.
    Green,
    /// Wants attention.
    Yellow,
    /// Goes on.
    Blue,
    /// Has something to say.
    Cyan,
    /// Cannot go on.
    Magenta,
}

impl Paint {
    fn code(self) -> &'static str {
        match self {
            Self::Bold => "1",
            Self::Dim => "2",
            Self::Red => "31",
            Self::Green => "32",
            Self::Yellow => "33",
            Self::Blue => "34",
            Self::Cyan => "36",
            Self::Magenta => "35",
        }
    }

    /// The colour of a state; the same words and colours everywhere.
    pub fn of_state(state: InstanceState) -> Option<Self> {
        match state {
            InstanceState::Completed => Some(Self::Green),
            InstanceState::Failed => Some(Self::Red),
            InstanceState::Blocked => Some(Self::Magenta),
            InstanceState::Cancelled | InstanceState::Pending => Some(Self::Yellow),
            InstanceState::Running => Some(Self::Blue),
            InstanceState::Waiting => Some(Self::Cyan),
            _ => None,
        }
    }
}

/// Whether to colour.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Style {
    /// Whether there are colours.
    pub is_coloured: bool,
}

impl Style {
    /// `NO_COLOR` forbids colours and `CLICOLOR_FORCE` asks for them, unless an argument decides.
    pub fn choose(colours: Colours, is_terminal: bool, variable: fn(&str) -> Option<String>) -> Self {
        let is_coloured = match colours {
            Colours::Always => true,
            Colours::Never => false,
            Colours::Auto if variable("NO_COLOR").is_some() => false,
            Colours::Auto if variable("CLICOLOR_FORCE").is_some_and(|force| force != "0") => true,
            Colours::Auto => is_terminal && variable("TERM").is_none_or(|terminal| terminal != "dumb"),
        };
        Self { is_coloured }
    }

    /// Colours a text.
    pub fn paint(self, paint: Paint, text: &str) -> Cow<'_, str> {
        if self.is_coloured && !text.is_empty() {
            format!("\u{1b}[{}m{text}\u{1b}[0m", paint.code()).into()
        } else {
            text.into()
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn colours_follow_argument_environment_and_terminal_in_this_order() {
        let nothing = |_: &str| None;
        let no_colour = |name: &str| (name == "NO_COLOR").then(|| "1".to_string());
        let forced = |name: &str| (name == "CLICOLOR_FORCE").then(|| "1".to_string());
        let is_coloured =
            |colours, terminal, variable| Style::choose(colours, terminal, variable).is_coloured;
        assert!(is_coloured(Colours::Auto, true, nothing));
        assert!(!is_coloured(Colours::Auto, false, nothing));
        assert!(!is_coloured(Colours::Auto, true, no_colour));
        assert!(is_coloured(Colours::Always, false, no_colour));
        assert!(is_coloured(Colours::Auto, false, forced));
        assert!(!is_coloured(Colours::Never, true, forced));
    }
}
