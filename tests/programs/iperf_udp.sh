# Runs the iperf3 client over UDP with the arguments given. Its greeting is one datagram each way,
# which it never repeats: where frames are lost on purpose, it is begun again.
for attempt in 1 2 3 4 5; do
    output=$(iperf3 "$@")
    status=$?
    case "$output" in
        *"unable to read from stream socket"*) sleep 1 ;;
        *) break ;;
    esac
done
echo "$output"
exit $status
