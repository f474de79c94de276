# sanitize.sh
