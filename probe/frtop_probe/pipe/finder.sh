{
# Finds a usable Python and becomes it. Any POSIX shell reads this from its standard input and may
# read ahead: so the operator sends nothing more before `frtop-boot`. All of it is one command, so
# no command reads a part of it as its input.
stage='@STAGE@'
become='@BECOME@'  # gives up root if FRTOP_USER is set
check='import sys
if sys.version_info < (3, 10):
    print("frtop-old %d.%d.%d" % sys.version_info[:3])
else:
    from importlib.util import find_spec
    wanted = "asyncio hashlib json resource select socket subprocess zipimport zlib".split()
    lacking = [name for name in wanted if find_spec(name) is None]
    print("frtop-lacks %s" % " ".join(lacking) if lacking else "frtop-ok")'
export LC_ALL=C
cd / 2>/dev/null
[ -z "$FRTOP_USER" ] || PATH=/usr/sbin:/usr/bin:/sbin:/bin:$PATH  # programs that every user can run
seen='' bad='' inside='' limit='' careful=$FRTOP_USER
timeout 10 true </dev/null >/dev/null 2>&1 && limit='timeout 10'

plain() {  # text for JSON: without quotes and backslashes
    (set -f; IFS='"\'; set -- $1; IFS=' '; printf '%s' "$*")
}

refuse() {  # refuse TEXT NEXT
    printf 'frtop-error {"text": "%s", "next": "%s"}\n' "$(plain "$1")" "$(plain "$2")"
    exit 1
}

trusted() {  # whether only root can change a file and each folder on the way to it
    case $1 in /*) step=$1 ;; *) return 1 ;; esac
    while :; do
        set -- $(ls -ldn "$step" 2>/dev/null)
        [ "$3" = 0 ] || return 1
        case $1 in ?????w* | ????????w*) return 1 ;; esac
        [ "$step" != / ] || return 0
        step=${step%/*}
        step=${step:-/}
    done
}

whole() {  # whether that holds for a Python and for its library
    trusted "$1" || return 1
    (
        set +f
        for part in "${1%/*/*}"/lib*/python3*; do
            [ ! -e "$part" ] || trusted "$(readlink -f "$part")" || exit 1
        done
    )
}

run() {  # run PROGRAM, with the Python $path
    if [ -z "$FRTOP_USER" ]; then
        $limit "$path" -I -S -c "$1"
    else
        $limit "$path" -I -S -c "$become" "$FRTOP_USER" "$1"
    fi
}

try() {  # try NAME-OR-PATH; does not return if it is usable
    case $1 in
        /*) path=$1; [ -x "$path" ] && [ ! -d "$path" ] || { bad="$bad; no program $path"; return; } ;;
        *) path=$(command -v "$1" 2>/dev/null) || return ;;
    esac
    case $seen in *"|$path|"*) return ;; esac
    seen="$seen|$path|"
    if [ -n "$careful" ]; then  # root runs it
        path=$(readlink -f "$path")
        whole "$path" || { bad="$bad; users other than root can change $path"; return; }
    fi
    found=$(run "$check" </dev/null 2>/dev/null)
    case $found in
        *frtop-ok*)
            [ -n "$FRTOP_USER" ] || exec "$path" -I -S -c "$stage"
            # A process of the user must have nothing of the environment of root in its memory.
            exec env -i LC_ALL=C "SLURM_PROCID=$SLURM_PROCID" "FRTOP_UNPREPARED=$FRTOP_UNPREPARED" \
                "FRTOP_READ_ONLY=$FRTOP_READ_ONLY" \
                "$path" -I -S -c "$become" "$FRTOP_USER" "$stage" ;;
        *frtop-error*) printf '%s\n' "$found"; exit 1 ;;
        *frtop-closed*) bad="$bad; user $FRTOP_USER cannot run $path" ;;
        *frtop-old*) bad="$bad; $path is Python ${found##*frtop-old }" ;;
        *frtop-lacks*) bad="$bad; $path lacks the standard library's ${found##*frtop-lacks }" ;;
        *)
            found=$($limit "$path" -V </dev/null 2>&1)
            case $found in
                "Python "[0-9]*) bad="$bad; $path is ${found%%[!A-Za-z0-9. ]*}" ;;
                *) bad="$bad; $path does not start" ;;
            esac ;;
    esac
}

if [ -n "$FRTOP_PYTHON" ]; then
    try "$FRTOP_PYTHON"
    [ -n "$bad" ] || bad="; there is no program $FRTOP_PYTHON"
    refuse "${bad#; }" "name a Python 3.10 or later of that host with --python PATH"
fi

for name in python3 python3.14 python3.13 python3.12 python3.11 python3.10 python; do
    try "$name"
done

# The ranks' own Pythons. Look only at executables: reading maps may hang. Root takes none that
# others may have replaced since.
set -- $(ls -ldn /proc/self/)
[ "$3" != 0 ] || careful=root
lines=$(ls -l /proc/[0-9]*/exe 2>/dev/null)
IFS='
'
set -f
count=0
for line in $lines; do
    path=${line##* -> }
    case $path in
        *'(deleted)') continue ;;
        /*/python*) ;;
        *) continue ;;
    esac
    case $seen in *"|$path|"*) continue ;; esac
    left=${line%% -> *}
    process=${left##* }
    process=${process%/exe}
    [ -O "$process" ] || continue
    count=$((count + 1))
    [ "$count" -le 16 ] || break
    if [ "$path" -ef "$process/exe" ]; then
        unset IFS
        try "$path"
        IFS='
'
    elif [ -z "$inside" ]; then
        inside="process ${process#/proc/} runs $path in a container or with a different root folder"
    fi
done
unset IFS

[ -z "$FRTOP_LAST_PYTHON" ] || try "$FRTOP_LAST_PYTHON"

next='name one with --python PATH (3.10 or later, of any environment on that host)'
[ -z "$FRTOP_USER" ] || next="name one with --python PATH that only root can change and $FRTOP_USER can run"
[ -z "$inside" ] || next="$next; $inside: go in there (docker exec, kubectl exec) and use its own"
refuse "no Python 3.10 or later was found${bad:-; there is none on PATH, and no process of yours runs one}" "$next"
}
