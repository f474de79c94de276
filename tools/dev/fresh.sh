# fresh.sh - the two commands of README.md on a bare Debian, as a newcomer has it.
#
#   ./dev fresh [12|13] [root|sudo|user] [run|test]
#
# debootstrap makes a root folder with the least packages of that release. A clone of the last commit goes to
# the home of root, of a user with sudo, or of a user without it: there ./dev run must name the
# packages that an administrator has to install, which root then does. `run` stops after ./dev run, `test`
# (the default) goes on with ./dev test, in the build folder that ./dev run has left.
#
# What this machine needs to reach its package sources (mirror, apt's settings, certificates, pip's file and
# variables) holds there too. Needs root, for chroot and mounts.

declare -A fresh_releases=([12]=bookworm [13]=trixie)

cmd_fresh()
{
    local release=${1:-13} user=${2:-root} last=${3:-test}
    [[ -n ${fresh_releases[$release]:-} && $user =~ ^(root|sudo|user)$ && $last =~ ^(run|test)$ ]] ||
        die "usage: ./dev fresh [12|13] [root|sudo|user] [run|test]"
    [[ $(id -u) == 0 ]] || die "./dev fresh needs root, for chroot and mounts"
    need_packages debootstrap debian-archive-keyring git
    fresh_base "${fresh_releases[$release]}"
    fresh_run "${fresh_releases[$release]}" "$user" "$last"
}

# The first mirror of apt's sources that is a Debian archive; on Ubuntu nothing.
apt_mirror()
{
    cat /etc/apt/sources.list /etc/apt/sources.list.d/*.{list,sources} 2>/dev/null |
        sed -nE 's/^(URIs:|deb( \[[^]]*\])?) *([^ ]*debian)\/?( .*)?$/\3/p' | head -n 1
}

# The archive that bare roots and the wheel's C library come from.
fresh_mirror()
{
    local mirror
    mirror=$(apt_mirror)
    printf '%s\n' "${mirror:-http://deb.debian.org/debian}"
}

# fresh_base RELEASE: the bare root as a tar file, made once.
fresh_base()
{
    local release=$1 folder
    [[ -f $cache_dir/fresh-$release.tar ]] && return
    say "debootstrap of $release"
    mkdir -p "$cache_dir"
    folder=$(mktemp -d "$cache_dir/fresh-new.XXXXXX")
    run_quietly "$folder.log" debootstrap --variant=minbase "$release" "$folder" "$(fresh_mirror)"
    tar -C "$folder" -cf "$folder.tar" .
    mv "$folder.tar" "$cache_dir/fresh-$release.tar"
    rm -rf "$folder" "$folder.log"
}

# fresh_settings ROOT: what this machine needs to reach its package sources.
fresh_settings()
{
    local root=$1 file
    for file in /etc/apt/apt.conf.d/*proxy* /etc/apt/apt.conf.d/99* /etc/apt/auth.conf.d/* /etc/pip.conf /etc/hosts \
        /etc/resolv.conf; do
        [[ -f $file ]] || continue
        mkdir -p "$root${file%/*}"
        cp -L "$file" "$root$file"
    done
    env | grep -E '^(https?_proxy|no_proxy|HTTPS?_PROXY|NO_PROXY|PIP_[A-Z_]+)=' |
        grep -vE '^PIP_(FIND_LINKS|CERT)=' >"$root/etc/fresh-environment" || true
    # Certificates that only this machine trusts; the package ca-certificates writes its own list.
    [[ -f /etc/ssl/certs/ca-certificates.crt ]] || return 0
    cp -L /etc/ssl/certs/ca-certificates.crt "$root/etc/fresh-certificates.pem"
    printf '%s=/etc/fresh-certificates.pem\n' PIP_CERT SSL_CERT_FILE REQUESTS_CA_BUNDLE CURL_CA_BUNDLE >>"$root/etc/fresh-environment"
}

# fresh_call ROOT USER COMMAND: by a shell in the root, with nothing of this environment but the settings.
fresh_call()
{
    local root=$1 user=$2 home=/root words=()
    [[ $user == root ]] || home=/home/$user
    mapfile -t words <"$root/etc/fresh-environment"
    chroot "$root" /usr/bin/env -i HOME="$home" USER="$user" PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin \
        TERM=dumb LANG=C.UTF-8 "${words[@]}" setpriv --reuid "$user" --regid "$user" --init-groups bash -c "$3"
}

fresh_unmount()
{
    local root=$1 folder
    for folder in dev/pts dev/shm dev proc sys; do
        umount -l "$root/$folder" 2>/dev/null || true
    done
}

# fresh_devices FOLDER: device files of its own. Those of this machine, mounted there, would go with a root
# that is removed by hand.
fresh_devices()
{
    local folder=$1 node
    mount -t tmpfs -o mode=755 tmpfs "$folder"
    for node in null:3 zero:5 full:7 random:8 urandom:9; do
        mknod -m 666 "$folder/${node%:*}" c 1 "${node#*:}"
    done
    mknod -m 666 "$folder/tty" c 5 0
    mkdir "$folder/pts" "$folder/shm"
    mount -t devpts -o newinstance,ptmxmode=0666,mode=620 devpts "$folder/pts"
    mount -t tmpfs -o mode=1777 tmpfs "$folder/shm"
    ln -s pts/ptmx "$folder/ptmx"
    ln -s /proc/self/fd "$folder/fd"
    for node in stdin:0 stdout:1 stderr:2; do
        ln -s "/proc/self/fd/${node#*:}" "$folder/${node%:*}"
    done
}

# fresh_root FOLDER RELEASE: unpacks and mounts a bare root there.
fresh_root()
{
    local root=$1 release=$2
    tar -C "$root" -xf "$cache_dir/fresh-$release.tar"
    chmod 755 "$root" # mktemp's mode, which the tar file has too, keeps all users but root out
    mount -t proc proc "$root/proc"
    fresh_devices "$root/dev"
    mount -t sysfs sysfs "$root/sys" 2>/dev/null || true
    fresh_settings "$root"
}

fresh_run()
{
    local release=$1 user=$2 last=$3 root account=root home=/root status=0
    root=$(mktemp -d "$cache_dir/fresh-$release-$user.XXXXXX")
    # shellcheck disable=SC2064  # this folder, now
    trap "fresh_unmount '$root'; rm -rf --one-file-system '$root'" EXIT
    fresh_root "$root" "$release"
    if [[ $user != root ]]; then
        account=newcomer # not "sudo": Debian has a group of that name
        home=/home/$account
        chroot "$root" useradd --create-home --shell /bin/bash --user-group "$account"
    fi
    [[ $user == sudo ]] && fresh_sudo "$root" "$account"
    git clone --quiet --no-hardlinks . "$root$home/gpuserve"
    chroot "$root" chown -R "$account:" "$home/gpuserve"
    chmod 700 "$root$home" # as Debian makes homes; other users do not reach the checkout
    fresh_steps "$root" "$user" "$account" "$last" || status=1
    return $status
}

fresh_sudo()
{
    run_quietly "$1/tmp/fresh.log" fresh_call "$1" root \
        'apt-get update -qq && DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends sudo'
    printf '%s ALL=(ALL) NOPASSWD: ALL\n' "$2" >"$1/etc/sudoers.d/fresh"
}

# The two commands; the last line is the count of the tests, or of the checks of ./dev run.
fresh_steps()
{
    local root=$1 user=$2 account=$3 last=$4 log="$1/tmp/fresh.log" names
    if [[ $user == user ]]; then
        if fresh_call "$root" "$account" 'cd ~/gpuserve && ./dev run' >"$log" 2>&1; then
            die "./dev run went well without the packages it needs"
        fi
        names=$(sed -n 's/^dev: .*apt-get install \(.*\)$/\1/p' "$log")
        [[ -n $names ]] || { cat "$log" >&2; die "./dev run did not say what an administrator has to install"; }
        say "an administrator installs what ./dev run names, and what ./dev test needs"
        run_quietly "$log" fresh_call "$root" root \
            "apt-get update -qq && apt-get install -y -qq --no-install-recommends git $names"
        run_quietly "$log" fresh_call "$root" root \
            "git config --system safe.directory '*'; cd ~$account/gpuserve && ./dev install-deps"
        chroot "$root" chown -R "$account:" "/home/$account"
    fi
    say "$user: ./dev run"
    if ! fresh_call "$root" "$account" 'cd ~/gpuserve && ./dev run' 2>&1 | tee "$log" ||
        ! grep -q 'Labels: sentiment' "$log"; then
        printf '0 passed, 1 failed\n'
        return 1
    fi
    if [[ $last == run ]]; then
        printf '1 passed, 0 failed\n'
        return
    fi
    say "$user: ./dev test"
    fresh_call "$root" "$account" 'cd ~/gpuserve && ./dev test' 2>&1 | tee "$log" || return 1 # of pipefail
    tail -n 1 "$log" | grep -qE '^[1-9][0-9]* passed, 0 failed$'
}
