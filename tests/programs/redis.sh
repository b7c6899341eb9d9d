# Loads a redis server with many commands: redis.sh ADDRESS PORT SECONDS REQUESTS
runs=0
end=$((SECONDS + $3))
while [ $SECONDS -lt $end ]; do
    redis-benchmark -h "$1" -p "$2" -c 50 -n "$4" -d 100 -q -t get,set,lpush,lrange_100,mset || exit 1
    redis-benchmark -h "$1" -p "$2" -c 20 -n "$4" -d 10000 -P 16 -q -t get,set || exit 1
    runs=$((runs + 7))
done
echo "$runs benchmarks of $4 requests each"
