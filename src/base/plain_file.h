// Opens files in directories that other users may write to: logs, figures, profiles and outputs of runs.
// Another user can put a link, a pipe or a device in a file's place. Only a regular file under exactly its
// name is opened, and the caller never waits. Any thread; read_up_to() allocates.
#pragma once

#include <sys/stat.h>
#include <sys/types.h>

#include <cstddef>
#include <cstdint>
#include <string>

namespace pinion {

/// Opens a file that exists; `access` is O_RDONLY or O_RDWR. Returns its descriptor, close-on-exec, or -1
/// with errno: ELOOP for a link, EINVAL for anything else but a regular file.
int open_plain_file(const std::string& path, int access);

/// Like open_plain_file(), for a file that the user names to be read: a link is followed. `status` gets the
/// status of the open file.
int open_named_file(const std::string& path);
int open_named_file(const std::string& path, struct stat& status);

/// Opens this user's own file for reading and writing, made where there is none. Returns -1 also where
/// another user has, or may have written, what lies there.
int open_users_file(const std::string& path);

/// Creates a file for reading and writing. Returns -1 and EEXIST where something has this name.
int create_plain_file(const std::string& path, mode_t mode = 0644);

/// Like create_plain_file(), but first removes the file or link of this name.
int replace_plain_file(const std::string& path, mode_t mode = 0644);

/// Whether an open file is this user's own, and closed to others. With a second name it counts as another's:
/// by a hard link, another user could lead here to a file of ours of another kind.
bool is_users_alone(const struct stat& status);

/// strerror(), with the reasons above in words.
const char* open_failure(int code);

/// Reads up to `most` bytes from the descriptor's position on. Returns false on an error, with errno.
bool read_up_to(int file, std::size_t most, std::string& bytes);

/// The most bytes that RLIMIT_FSIZE lets a file have. Where a file would exceed it, the kernel ends the
/// process by SIGXFSZ, so Pinion's files are compared with it first.
std::uint64_t file_size_limit();

/// Takes memory for a part of the file, so that touching it later cannot fail. Returns 0 or an error's
/// number; signals, which interrupt the call, are nothing to its caller.
int take_file_space(int file, std::uint64_t offset, std::uint64_t bytes);

/// Writes all bytes to the end of the file. Returns false on an error, with errno: EFBIG before a write
/// beyond file_size_limit().
bool write_whole(int file, const std::string& bytes);

}  // namespace pinion
