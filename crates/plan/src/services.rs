//! Sections of the types `daemon` and `web`: arguments of `sqm daemon` and `sqm web`, which init scripts of OpenWrt read. They
//! plan no queues, so nothing in them is an error, but an option without effect is reported.

use sqm_core::nearest::nearest;
use sqm_core::units::shortened;

use crate::diagnostic::{Finding, Report};
use crate::uci;
use crate::value;

/// An option of a service and the form of its value.
type Setting = (&'static str, Form);

#[derive(Clone, Copy)]
enum Form {
    /// `1` or `0`.
    Switch,
    /// One of these words.
    Words(&'static [&'static str]),
    /// Checked by the program that receives it.
    Text,
}

/// Words of `--log-level`.
const LEVELS: Form = Form::Words(&["error", "warning", "info", "debug"]);

/// Each type of section with its options. packaging/openwrt/sqm.init and sqm-web.init read them.
const SERVICES: [(&str, &[Setting]); 2] = [
    (
        "daemon",
        &[
            ("drift", Form::Words(&["repair", "report"])),
            ("metrics", Form::Text),
            ("admin_user", Form::Text),
            ("fleet_url", Form::Text),
            ("fleet_credentials", Form::Text),
            ("fleet_key", Form::Text),
            ("fleet_ca", Form::Text),
            ("log_level", LEVELS),
            ("syslog", Form::Switch),
        ],
    ),
    (
        "web",
        &[
            ("listen", Form::Text),
            ("name", Form::Text),
            ("tls", Form::Switch),
            ("user", Form::Text),
            ("dir", Form::Text),
            ("results", Form::Text),
            ("log_level", LEVELS),
        ],
    ),
];

/// The names of the options of a type of section; none if it is not the section of a service.
pub fn options(kind: &str) -> Option<impl Iterator<Item = &'static str>> {
    let (_, settings) = SERVICES.iter().find(|(name, _)| *name == kind)?;
    Some(settings.iter().map(|(name, _)| *name))
}

/// The types of section.
pub fn kinds() -> impl Iterator<Item = &'static str> {
    SERVICES.iter().map(|(kind, _)| *kind)
}

/// Reports options of a service's section that have no effect. False if the section is of another type.
pub(crate) fn is_checked(section: &uci::Section<'_>, report: &mut Report) -> bool {
    let Some((kind, settings)) = SERVICES.iter().find(|(kind, _)| *kind == section.kind) else {
        return false;
    };
    for uci::Setting {
        line, name, value, ..
    } in &section.settings
    {
        let finding = match settings.iter().find(|(known, _)| known == name) {
            None => {
                let meant = nearest(name, settings.iter().map(|(known, _)| *known));
                let message = format!("ignored: a section of the type '{kind}' has no such option");
                Some(Finding::of_value(message).suggest(meant))
            }
            Some((_, form)) => form.refuse(value.trim()),
        };
        if let Some(finding) = finding {
            report.warning(finding.on_line(*line).foreign_option(name));
        }
    }
    true
}

impl Form {
    /// The reason why a value has no effect.
    fn refuse(self, value: &str) -> Option<Finding> {
        match self {
            Self::Switch => value::switch(value).err(),
            Self::Words(words) if !value.is_empty() && !words.contains(&value) => {
                let message = format!("ignored: '{}' is none of {}", shortened(value), words.join(", "));
                Some(Finding::of_value(message).suggest(nearest(value, words.iter().copied())))
            }
            Self::Words(_) | Self::Text => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use crate::Configuration;
    use crate::device::Device;

    fn warnings(text: &str) -> Vec<String> {
        let loaded = crate::load(text.as_bytes(), "sqm", &Device::absent).expect("no errors");
        loaded.warnings.iter().map(ToString::to_string).collect()
    }

    #[test]
    fn the_sections_of_the_services_need_no_remark() {
        let text = "config daemon\n option drift report\n option metrics '127.0.0.1:9469'\n option admin_user ada\n \
                    option log_level debug\n option syslog 1\nconfig web\n option listen '192.168.1.1:8443'\n list name router.lan\n \
                    list name router\n option tls on\n option dir /etc/sqm-web\n option results /tmp/r\n option user ada\n option log_level info\n";
        assert_eq!(warnings(text), [""; 0]);
        assert!(
            Configuration::parse(text.as_bytes(), "sqm")
                .unwrap()
                .sections()
                .is_empty()
        );
    }

    #[test]
    fn an_option_of_a_service_without_effect_is_reported() {
        let text = "config daemon main\n option drfit report\n option drift repot\n option syslog 2\nconfig web\n option port 80\n";
        assert_eq!(
            warnings(text),
            [
                "sqm:2: option 'drfit': ignored: a section of the type 'daemon' has no such option; did you mean 'drift'?",
                "sqm:3: option 'drift': ignored: 'repot' is none of repair, report; did you mean 'report'?",
                "sqm:4: option 'syslog': '2' is neither on (1) nor off (0)",
                "sqm:6: option 'port': ignored: a section of the type 'web' has no such option",
            ]
        );
    }

    #[test]
    fn a_misspelt_service_is_a_warning() {
        assert_eq!(
            warnings("config deamon\n option drift report\n"),
            ["sqm:1: unknown section type 'deamon'; did you mean 'daemon'?"]
        );
    }
}
