#!/bin/sh
# After the installation of the deb or the rpm: the user that the service runs as.
set -e

if ! getent passwd mcp-bridge >/dev/null; then
	useradd --system --user-group --home-dir /var/lib/mcp-bridge --no-create-home --shell /usr/sbin/nologin mcp-bridge
fi
# The configuration may have secrets.
chgrp mcp-bridge /etc/mcp-bridge /etc/mcp-bridge/servers.json
chmod 0750 /etc/mcp-bridge
chmod 0640 /etc/mcp-bridge/servers.json

if [ -d /run/systemd/system ]; then
	systemctl daemon-reload
	# Of an upgrade. A configuration that the new version refuses is the service's failure, and the journal has it:
	# it must not leave the package half installed.
	systemctl try-restart mcp-bridge.service || true
fi
