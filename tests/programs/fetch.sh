# Fetches a file again and again and compares its checksum: fetch.sh URL SECONDS SHA256
fetches=0
end=$((SECONDS + $2))
while [ $SECONDS -lt $end ]; do
    sum=$(curl --silent --show-error --fail --max-time 120 "$1" | sha256sum)
    if [ "${sum%% *}" != "$3" ]; then
        echo "fetch $fetches has checksum ${sum%% *}"
        exit 1
    fi
    fetches=$((fetches + 1))
done
echo "$fetches fetches, all checksums equal"
