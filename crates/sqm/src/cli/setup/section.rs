//! The section of the line in the configuration.

use sqm_configuration::{Draft, EditError};
use sqm_core::direction::Direction;
use sqm_core::units::Rate;
use sqm_plan::OptionValue;
use sqm_plan::link::Preset;
use sqm_plan::settings::Script;

/// The section that the Debian package ships, as an example that is switched off.
const SAMPLE: &str = include_str!("../../../../../packaging/debian/sqm.conf");

/// The settings to be written.
pub(super) struct Wanted {
    pub(super) interface: String,
    pub(super) link: &'static Preset,
    pub(super) download: Rate,
    pub(super) upload: Rate,
}

/// Settings that the configuration already has for the interface.
#[derive(Default)]
pub(super) struct Existing {
    pub(super) section: Option<usize>,
    pub(super) is_enabled: bool,
    pub(super) link: Option<&'static Preset>,
    pub(super) download: Option<Rate>,
    pub(super) upload: Option<Rate>,
}

impl Existing {
    pub(super) fn of(draft: &Draft, interface: &str) -> Self {
        let Some(section) = draft.section_of(interface) else {
            // The example of the package becomes the section of the line: beside it, it would look like a second line.
            return Self {
                section: (0..draft.section_count()).find(|section| is_sample(draft, *section)),
                ..Self::default()
            };
        };
        if is_sample(draft, section) {
            return Self {
                section: Some(section),
                ..Self::default()
            };
        }
        let rate = |direction: Direction| match draft.value(section, direction.name()) {
            Some(OptionValue::Rate(_, rate)) if rate.kbits_per_sec() > 0 => Some(rate),
            _ => None,
        };
        let link = match draft.value(section, "link") {
            Some(OptionValue::Link(link)) => Some(link),
            _ => None,
        };
        Self {
            section: Some(section),
            is_enabled: draft.value(section, "enabled") == Some(OptionValue::Enabled(true)),
            link,
            download: rate(Direction::Download),
            upload: rate(Direction::Upload),
        }
    }

    pub(super) fn rate(&self, direction: Direction) -> Option<Rate> {
        match direction {
            Direction::Download => self.download,
            Direction::Upload => self.upload,
        }
    }
}

/// True if the section is the package's example, unchanged.
fn is_sample(draft: &Draft, section: usize) -> bool {
    const OPTIONS: [&str; 6] = ["enabled", "interface", "download", "upload", "script", "link"];
    let Ok(sample) = Draft::of(SAMPLE.as_bytes()) else {
        return false;
    };
    let is_off = draft.value(section, "enabled") == Some(OptionValue::Enabled(false));
    is_off
        && OPTIONS
            .iter()
            .all(|option| draft.value(section, option) == sample.value(0, option))
}

/// The file's text with the wanted options, in the existing section or in a new one at the end.
pub(super) fn changed(
    mut draft: Draft,
    section: Option<usize>,
    wanted: &Wanted,
) -> Result<Vec<u8>, EditError> {
    let section = match section {
        Some(section) => section,
        None => draft.add_section()?,
    };
    draft.set(section, &OptionValue::Enabled(true))?;
    draft.set(section, &OptionValue::Interface(wanted.interface.clone()))?;
    draft.set(section, &OptionValue::Rate(Direction::Download, wanted.download))?;
    draft.set(section, &OptionValue::Rate(Direction::Upload, wanted.upload))?;
    if !draft.gives(section, "script") {
        draft.set(section, &OptionValue::Script(Script::BestOfCake))?;
    }
    draft.set(section, &OptionValue::Link(wanted.link))?;
    Ok(draft.finish())
}

#[cfg(test)]
mod tests {
    use super::super::questions::parse_kind;
    use super::super::rates::parse_rate;
    use super::*;

    fn wanted(link: &str, down: &str, up: &str) -> Wanted {
        Wanted {
            interface: "eth0".to_owned(),
            link: parse_kind(link).unwrap(),
            download: parse_rate(down).unwrap(),
            upload: parse_rate(up).unwrap(),
        }
    }

    fn after(text: &str, wanted: &Wanted) -> String {
        let draft = Draft::of(text.as_bytes()).unwrap();
        let section = Existing::of(&draft, "eth0").section;
        String::from_utf8(changed(draft, section, wanted).unwrap()).unwrap()
    }

    #[test]
    fn a_new_section_is_appended_and_nothing_else_changes() {
        let others = "# mine\nconfig queue 'lan'\n\toption interface 'eth1' # keep\n\toption foreign 'x'";
        let text = after(others, &wanted("docsis", "85mbit", "10mbit"));
        let new = "config queue\n\toption enabled '1'\n\toption interface 'eth0'\n\toption download '85000'\n\
                   \toption upload '10000'\n\toption script 'best_of_cake.qos'\n\toption link 'docsis'\n";
        assert_eq!(text, format!("{others}\n\n{new}"));
        assert_eq!(after("", &wanted("docsis", "85mbit", "10mbit")), new);
        // A second change to the same values changes nothing.
        assert_eq!(after(&text, &wanted("docsis", "85mbit", "10mbit")), text);
    }

    #[test]
    fn a_section_keeps_its_comments_its_options_and_its_words() {
        let text = "config queue 'wan' # the line\n\toption interface 'eth0'\n\toption enabled '0'\n\
                    \toption download '85mbit' # tuned\n\toption upload '9000'\n\toption script 'layer_cake.qos'\n\
                    \toption foreign 'x'\n";
        let expected = text
            .replace("enabled '0'", "enabled '1'")
            .replace("'9000'", "'10000'")
            + "\toption link 'docsis'\n";
        assert_eq!(after(text, &wanted("docsis", "85mbit", "10mbit")), expected);
        assert_eq!(after(&expected, &wanted("docsis", "85mbit", "10mbit")), expected);
    }

    #[test]
    fn the_example_of_the_package_becomes_the_section_of_the_line() {
        let text = after(SAMPLE, &wanted("docsis", "24mbit", "4400kbit"));
        assert_eq!(text.matches("\nconfig queue").count(), 1, "{text}");
        assert!(
            text.contains("enabled '1'") && text.contains("option download '24000'"),
            "{text}"
        );
        let draft = Draft::of(SAMPLE.as_bytes()).unwrap();
        let existing = Existing::of(&draft, "wan0");
        assert_eq!((existing.section, existing.download), (Some(0), None));
        // A section that its owner has changed is another line.
        let own = SAMPLE.replace("85mbit", "50mbit");
        let draft = Draft::of(own.as_bytes()).unwrap();
        assert_eq!(Existing::of(&draft, "wan0").section, None);
    }
}
