//! A unit for systemd: [`unit()`], and the folders that it hides: [`hidden_folder`].

use std::path::Path;

/// Returns a unit that runs a gateway with `program`.
pub(super) fn unit(program: &Path) -> String {
    UNIT.replace("PROGRAM", &quoted(&program.to_string_lossy()))
}

/// Returns the folder that contains the program if the unit hides it (`ProtectHome=` and
/// `PrivateTmp=`).
pub(super) fn hidden_folder(program: &Path) -> Option<&'static str> {
    HIDDEN.into_iter().find(|folder| program.starts_with(folder))
}

/// Folders whose contents the unit hides from the gateway.
const HIDDEN: [&str; 5] = ["/home", "/root", "/run/user", "/tmp", "/var/tmp"];

/// Returns a word as systemd reads it.
fn quoted(word: &str) -> String {
    let escaped = word.replace('\\', "\\\\").replace('"', "\\\"");
    let escaped = escaped.replace('%', "%%").replace('$', "$$");
    let is_plain = |char: char| char.is_alphanumeric() || "/._-+".contains(char);
    if word.chars().all(is_plain) { escaped } else { format!("\"{escaped}\"") }
}

const UNIT: &str = "\
# Runs a gateway that carries mailboxes to other hosts (`tontine bridge`).
#
#   useradd --system --shell /usr/sbin/nologin tontine
#   tontine bridge unit > /etc/systemd/system/tontine-bridge.service
#   systemctl daemon-reload
#   systemctl enable --now tontine-bridge

[Unit]
Description=Tontine gateway, which carries mailboxes to other hosts
Wants=network-online.target
After=network-online.target
StartLimitIntervalSec=0

[Service]
Type=notify
ExecStart=PROGRAM bridge --config /etc/tontine/bridge.toml
Restart=always
RestartSec=1
# A mistake in the configuration needs an administrator.
RestartPreventExitStatus=2
WatchdogSec=30
User=tontine
Group=tontine

# The imports' sockets. The folder stays while the gateway restarts.
RuntimeDirectory=tontine
RuntimeDirectoryMode=0755
RuntimeDirectoryPreserve=restart
# A lane takes three descriptors.
LimitNOFILE=65536

# An import outside of /run/tontine needs `ReadWritePaths=` with its folder. An export in a home, in
# /run/user or in /tmp needs other values here. `PrivateUsers=` and `ProtectProc=` must stay off:
# the gateway identifies programs of other users.
ProtectSystem=strict
ProtectHome=yes
PrivateTmp=yes
PrivateDevices=yes
ProtectClock=yes
ProtectControlGroups=yes
ProtectHostname=yes
ProtectKernelLogs=yes
ProtectKernelModules=yes
ProtectKernelTunables=yes
NoNewPrivileges=yes
CapabilityBoundingSet=
LockPersonality=yes
MemoryDenyWriteExecute=yes
RemoveIPC=yes
RestrictAddressFamilies=AF_UNIX AF_INET AF_INET6 AF_NETLINK
RestrictNamespaces=yes
RestrictRealtime=yes
RestrictSUIDSGID=yes
SystemCallArchitectures=native
SystemCallFilter=@system-service
SystemCallErrorNumber=EPERM

[Install]
WantedBy=multi-user.target
";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn program_in_hidden_folder_is_found() {
        for folder in HIDDEN {
            let program = Path::new(folder).join("ada/.cargo/bin/tontine");
            assert_eq!(hidden_folder(&program), Some(folder));
        }
        for program in ["/usr/local/bin/tontine", "/opt/home/tontine", "/homes/tontine"] {
            assert_eq!(hidden_folder(Path::new(program)), None, "{program}");
        }
    }

    #[test]
    fn program_is_quoted_for_systemd() {
        assert_eq!(quoted("/usr/bin/tontine"), "/usr/bin/tontine");
        assert_eq!(quoted("/a b/100%/$x/\"y\\"), "\"/a b/100%%/$$x/\\\"y\\\\\"");
        let unit = unit(Path::new("/usr/bin/tontine"));
        let line = "\nExecStart=/usr/bin/tontine bridge --config /etc/tontine/bridge.toml\n";
        assert!(unit.contains(line) && !unit.contains("PROGRAM"), "{unit}");
    }
}
