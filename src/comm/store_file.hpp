// A store that is a file, for ranks that share a file system and nothing else.
//
// The file is a log of records, appended under flock. Rank 0 starts a run: it empties the file and writes a header with a
// random number. The others enter a run when they see one that does not hold them yet. A leftover of an earlier job cannot
// be taken for the present one: a gather ends only with rank 0's own confirmation, and a dead rank 0 confirms nothing;
// whoever entered a leftover sees the new run's header and enters again. When all have read everything, the last one
// removes the file.
//
//   header: "GSYFILE1", u64 run, u32 size, Writer           Writer: u64 boot, u32 process id, u64 process identity
//   record: u32 bytes of the body, u8 type, u32 rank, body
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "base/descriptor.hpp"
#include "comm/store.hpp"

namespace gradsync {

class FileStore final : public Store {
 public:
  // `entered` is called with job() whenever a run is entered (again, if the first was a leftover).
  static Result<std::unique_ptr<FileStore>> open(const std::string& path, const StoreIdentity& identity,
                                                 std::function<void(std::uint64_t)> entered, Deadline deadline);

  std::uint64_t job() const override { return run_; }
  Result<std::vector<std::string>> gather(const std::string& name, const std::string& blob, Deadline deadline) override;
  Status put(const std::string& name, const std::string& value, Deadline deadline) override;
  Result<std::string> get(const std::string& name, Deadline deadline) override;
  Status settle(Deadline deadline) override;
  void fail(const std::string& why) override;

 private:
  enum class Type : std::uint8_t { enter = 1, gather, confirm, value, done, fail };
  struct Writer {
    std::uint64_t boot = 0;
    std::uint32_t process_id = 0;
    std::uint64_t process = 0;
    bool alive_here() const;  // certainly: it runs on this host
  };
  // What the file says, as far as it was read.
  struct Log {
    std::uint64_t run = 0;  // 0: no header
    std::uint32_t size = 0;
    Writer first;          // rank 0
    std::size_t read = 0;  // bytes understood
    std::map<std::uint32_t, Writer> entered;
    std::map<std::string, std::map<std::uint32_t, std::string>> gathers;
    std::set<std::string> confirmed;
    std::map<std::string, std::string> values;
    std::set<std::uint32_t> done;
    std::optional<std::pair<std::uint32_t, std::string>> failed;
  };

  FileStore(std::string path, const StoreIdentity& identity, std::function<void(std::uint64_t)> entered)
      : path_(std::move(path)),
        identity_(identity),
        entered_(std::move(entered)) {}

  Status lock(Deadline deadline, Descriptor& file);  // the file that the path names now, created if need be
  Status refresh(int file);                          // reads what was appended
  bool read_header(std::string_view bytes);
  bool read_record(std::string_view bytes);
  void note(Type type, std::uint32_t rank, std::string_view body);
  Status append(int file, Type type, std::string_view body);
  Status start_run(int file);
  Status enter_run(int file, bool& inside);
  Status enter(Deadline deadline);
  Status check_failed() const;
  Status take_part(const std::string& name, const std::string& blob, Deadline deadline, bool& finished);
  Status missing(const std::string& name) const;

  std::string path_;
  StoreIdentity identity_;
  std::function<void(std::uint64_t)> entered_;
  std::uint64_t run_ = 0;
  std::uint64_t inode_ = 0;
  Log log_;
  Status doubt_;  // why the run in the file was not entered, if that is still so at the deadline
};

}  // namespace gradsync
