# Moves a file through SSH sessions both ways and compares its checksum:
# ssh.sh DIRECTORY ADDRESS PORT SECONDS FILE SHA256
sessions=0
end=$((SECONDS + $4))
session() {
    ssh -F none -i "$1/user" -p "$3" -o StrictHostKeyChecking=no -o UserKnownHostsFile=/dev/null \
        -o LogLevel=ERROR -o BatchMode=yes "root@$2" "$4"
}
while [ $SECONDS -lt $end ]; do
    for sum in "$(session "$1" "$2" "$3" "cat '$5'" </dev/null | sha256sum)" \
        "$(session "$1" "$2" "$3" sha256sum <"$5")"; do
        if [ "${sum%% *}" != "$6" ]; then
            echo "session $sessions has checksum ${sum%% *}"
            exit 1
        fi
        sessions=$((sessions + 1))
    done
done
echo "$sessions sessions, all checksums equal"
