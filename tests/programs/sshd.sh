# An SSH server with keys, port and files of its own: sshd.sh DIRECTORY ADDRESS PORT
set -e
mkdir -p "$1" /run/sshd
for key in host user; do
    ssh-keygen -q -t ed25519 -N "" -f "$1/$key"
done
cat >"$1/config" <<END
Port $3
ListenAddress $2
HostKey $1/host
AuthorizedKeysFile $1/user.pub
PidFile none
StrictModes no
UsePAM no
PermitRootLogin prohibit-password
PasswordAuthentication no
END
exec /usr/sbin/sshd -D -e -f "$1/config"
