use std::net::Ipv4Addr;

use proptest::prelude::*;

use super::addresses::is_public;
use super::redact;

const MAC: &str = "<hardware address>";
const V4: &str = "<public IPv4 address>";
const V6: &str = "<public IPv6 address>";

#[test]
fn hardware_addresses_are_removed_in_any_notation() {
    for address in [
        "52:54:00:12:34:56",
        "52-54-00-12-34-56",
        "52.54.00.12.34.56",
        "5254.0012.3456",
        "5254-0012-3456",
        "5254:0012:3456",
        "525400-123456",
        "001122334455",
        "DEADBEEF0001",
        "0:11:22:a:44:55",
        "52:54:00:ff:fe:12:34:56",
        "52-54-00-FF-FE-12-34-56",
        "525400fffe123456",
        "FC:EC:DA:0A:0B:0C",
    ] {
        for (before, after) in [
            ("", ""),
            ("link/ether ", " brd"),
            ("(", ")"),
            ("hwaddr=", "."),
            ("'", "',"),
        ] {
            assert_eq!(
                redact(&format!("{before}{address}{after}")),
                format!("{before}{MAC}{after}")
            );
        }
    }
    let made = "<address made of a hardware address>";
    for (text, clean) in [
        ("fe80::5054:ff:fe12:3456%eth0 dev", format!("{made}%eth0 dev")),
        ("[fe80::5054:ff:fe12:3456]:53", format!("[{made}]:53")),
        ("fd00:1:2:3:5054:ff:fe12:3456/64", format!("{made}/64")),
        ("2001:db8::5054:ff:fe12:3456", V6.to_owned()),
    ] {
        assert_eq!(redact(text), clean);
    }
}

#[test]
fn public_addresses_are_removed_in_any_notation() {
    for address in ["203.0.113.9", "8.8.8.8", "203.000.113.009", "203-0-113-9"] {
        for (before, after) in [
            ("inet ", "/24"),
            ("to ", ":53."),
            ("", ".53:"),
            ("ip", " "),
            ("host-", ".dyn.example"),
        ] {
            assert_eq!(
                redact(&format!("{before}{address}{after}")),
                format!("{before}{V4}{after}")
            );
        }
    }
    for address in [
        "2001:db8::1",
        "2A02:8109:1::7",
        "::ffff:203.0.113.78",
        "::ffff:cb00:714e",
        "0:0:0:0:0:ffff:203.0.113.78",
        "::203.0.113.78",
        "64:ff9b::203.0.113.78",
        "64:ff9b::cb00:714e",
        "2002:cb00:714e::1",
        "2001:0:53aa:64c:0:fbff:ad0f:1",
        "fe80::5efe:203.0.113.78",
        "20010db8000000000000000000000001",
        "2001:0db8:0000:0000:0000:0000:0000:0001",
    ] {
        let forms = [
            ("", ""),
            ("[", "]:443"),
            ("", "%wan0"),
            ("", "/64"),
            ("src ", " via"),
            ("inet6:", "."),
            ("@", "#53"),
        ];
        for (before, after) in forms {
            assert_eq!(
                redact(&format!("{before}{address}{after}")),
                format!("{before}{V6}{after}")
            );
        }
    }
    assert_eq!(
        redact("2001:db8::1.443 > 203.0.113.9.53:"),
        format!("{V6}.443 > {V4}.53:")
    );
}

#[test]
fn information_about_the_network_is_kept() {
    for text in [
        "inet 192.168.1.1/24 100.64.3.4 255.255.255.0 0.0.0.255 10.0.0.1:53 172.16.0.9 127.0.0.1 169.254.1.1 224.0.0.1",
        "fe80::1%eth0 fd00:64::1 ::1 :: ff02::1 ::ffff:192.168.1.1 64:ff9b::10.0.0.1 [fd00::1]:80",
        "12:34:56 cake 1: dev",
        "rate 4400kbit 1.5.2 a:b 6.1.0-28-amd64 2026-11-27 1.2.3",
        "tc qdisc add dev eth0.2@eth0 root handle 1: cake bandwidth 10mbit triple-isolate nat",
        "veth0@if12: std::io",
        "  \"sent_bytes\": 123456789012,",
        "cpu0 100 0 50 800 50 0 100 0 0 0",
        "000000a0 00000000 0000001f",
        "\toption iqdisc_opts 'nat dual-dsthost ingress'",
        "basic setting; a digest of facts",
        "module sch_cake, /sys/devices/system/cpu/cpu0/Foo1",
        "this kernel has no CAKE: it needs CONFIG_NET_SCH_CAKE (module sch_cake)",
    ] {
        assert_eq!(redact(text), text);
    }
}

#[test]
fn secrets_are_removed() {
    for (text, clean) in [
        ("\toption password 'hunter2'", "\toption password <removed>"),
        (
            "\toption ppp_password_file 'x y'",
            "\toption ppp_password_file <removed>",
        ),
        ("PSK=abc", "PSK <removed>"),
        ("\"token\": \"abc\"", "\"token <removed>"),
        ("# pass hunter2", "# pass <removed>"),
        ("# pw hunter2", "# pw <removed>"),
        ("# my pwd: hunter2", "# my pwd <removed>"),
        ("#PASS hunter2", "#PASS <removed>"),
        ("# wifi_pw=hunter2", "# wifi_pw <removed>"),
        ("wpaPsk2 hunter2", "wpaPsk2 <removed>"),
        ("apiKey: hunter2", "apiKey <removed>"),
        ("Kennwort hunter2", "Kennwort <removed>"),
        ("# PPPoE user hunter2", "# PPPoE user <removed>"),
        ("option username hunter2", "option username <removed>"),
        ("option ssid 'hunter2'", "option ssid <removed>"),
        ("serial number hunter2", "serial <removed>"),
        ("SN: hunter2", "SN <removed>"),
        (
            "Authorization: Basic aHVudGVyMjpodW50ZXIy",
            "Authorization <removed>",
        ),
        ("curl -H 'Basic aHVudGVyMjpodW50ZXIy'", "curl -H 'Basic <removed>"),
        ("Bearer hunter2hunter", "Bearer <removed>"),
        ("curl -u joe:hunter2 http://x", "curl -u <removed>"),
        ("wget --user=joe --http-passwd=hunter2", "wget --user <removed>"),
        ("http://joe:hunter2@host/x", "http://<removed>@host/x"),
        (
            "a ftp://joe:hun/ter@2@host/ b ssh://joe@h2 c",
            "a ftp://<removed>@host/ b ssh://<removed>@h2 c",
        ),
        (
            "ask joe@provider.example, or ann+1@x.example.",
            "ask <name>, or <name>",
        ),
        ("name=0123456789@t-online.de", "name=<name>"),
        ("# wg yAnz5TF+lXXJte14tji3zlMNq+hd2rYUIgJBgB3fBmk=", "# wg <key>"),
        ("ghp_16C7e42F292c6912E7710c838347Ae178B4a x", "<key> x"),
        ("eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiIxMjM0In0.x-1", "<key>"),
        ("root:$6$salt$hashhashhash:19000", "<key>"),
        (
            "# the password is:\n# hunter2\nrate 1",
            "# the password <removed>\n# hunter2\nrate 1",
        ),
        ("password:\n  hunter2\nrate 1", "password:\n<removed>\nrate 1"),
        (
            "a\n# -----BEGIN RSA PRIVATE KEY-----\n# MIIE\n# -----END RSA PRIVATE KEY-----\nb",
            "a\n<removed>\n<removed>\n<removed>\nb",
        ),
    ] {
        assert_eq!(redact(text), clean);
    }
}

proptest! {
    #[test]
    fn no_public_address_is_left(a in 1..224_u8, b: u8, c: u8, d: u8, before in "[ a-z=(,]{0,3}", after in "[ /,)a-z]{0,2}") {
        let address = Ipv4Addr::new(a, b, c, d);
        prop_assume!(is_public(address));
        let clean = redact(&format!("{before}{address}{after}"));
        prop_assert!(!clean.contains(&address.to_string()), "{clean}");
    }

    #[test]
    fn no_public_address_is_left_in_one_of_ipv6(a in 1..224_u8, b: u8, c: u8, d: u8, prefix in "(::ffff:|64:ff9b::|::ffff:0:)") {
        let address = Ipv4Addr::new(a, b, c, d);
        prop_assume!(is_public(address));
        let parsed: std::net::Ipv6Addr = format!("{prefix}{address}").parse().unwrap();
        for text in [parsed.to_string(), format!("{prefix}{address}"), format!("[{parsed}]:80"), format!("{parsed}%eth0")] {
            let clean = redact(&text);
            prop_assert!(clean.contains(V6), "{text}: {clean}");
        }
    }

    #[test]
    fn no_hardware_address_is_left(bytes: [u8; 6], mark in "[:.-]", before in "[ =(,']{0,1}") {
        let groups: Vec<String> = bytes.iter().map(|byte| format!("{byte:02x}")).collect();
        let text = groups.join(&mark);
        prop_assert_eq!(redact(&format!("{before}{text}")), format!("{before}{MAC}"));
        prop_assert_eq!(redact(&format!("{before}{}", text.to_uppercase())), format!("{before}{MAC}"));
    }

    #[test]
    fn arbitrary_text_is_redacted_line_by_line(text in any::<String>()) {
        prop_assert_eq!(redact(&text).split('\n').count(), text.split('\n').count());
    }

    #[test]
    fn text_like_addresses_does_not_panic(text in "[0-9a-f:.%@$=\\- '/é]{0,60}") {
        prop_assert_eq!(redact(&text).split('\n').count(), 1);
    }
}
