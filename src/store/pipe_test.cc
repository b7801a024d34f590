#include "store/pipe.h"

#include <gmock/gmock.h>
#include <unistd.h>

#include <csignal>

#include "base/thread.h"
#include "store/local/file_system.h"
#include "store/test_tools.h"

namespace starling {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

class PipeTest : public ::testing::Test {
 protected:
  StatusOr<std::string> through(const std::string& input, const std::vector<std::string>& command,
                                PipeOptions options = {}) {
    auto reader = pipe_command(std::make_unique<StringReader>(input, 1 << 20, "test://input"),
                               command, clock_, options);
    if (!reader.ok()) return reader.status();
    return read_all(**reader, 1 << 30);
  }
  RealClock clock_;
};

bool is_alive(pid_t pid) {
  // A zombie that its parent has not reaped counts as dead.
  const StatusOr<std::string> stat = [&]() -> StatusOr<std::string> {
    LocalFileSystem fs;
    return read_file(fs, fmt::format("/proc/{}/stat", pid));
  }();
  return stat.ok() && stat->find(") Z ") == std::string::npos;
}

TEST_F(PipeTest, BytesGoThroughTheCommand) {
  EXPECT_EQ(*through("b\na\nc\n", {"sort"}), "a\nb\nc\n");
  EXPECT_EQ(*through("", {"cat"}), "");
}

TEST_F(PipeTest, MoreThanThePipesHoldGoesThrough) {
  const std::string data = random_bytes(5 << 20, 1);
  EXPECT_TRUE(*through(data, {"cat"}) == data);
}

TEST_F(PipeTest, ArgumentsAreNeverSeenByAShell) {
  EXPECT_EQ(*through("", {"printf", "%s", "$(id); `id` | 'x' \"y\" > /dev/null"}),
            "$(id); `id` | 'x' \"y\" > /dev/null");
}

TEST_F(PipeTest, AFailureGivesTheExitStatusAndTheLastErrorLine) {
  const auto result = through("x", {"sh", "-c", "echo first >&2; echo 'the reason' >&2; exit 3"});
  EXPECT_CODE(result, kFailedPrecondition);
  EXPECT_THAT(test_status(result), AllOf(HasSubstr("test://input"), HasSubstr("sh"),
                                         HasSubstr("exit status 3: the reason")));
}

TEST_F(PipeTest, AFailureAfterOutputIsStillAFailure) {
  EXPECT_CODE(through("x", {"sh", "-c", "echo some output; exit 1"}), kFailedPrecondition);
}

TEST_F(PipeTest, ASignalIsNamed) {
  EXPECT_THAT(test_status(through("x", {"sh", "-c", "kill -9 $$"})), HasSubstr("signal 9"));
}

TEST_F(PipeTest, AnEndlessErrorStreamIsDrainedAndBounded) {
  const auto result = through(
      "x", {"sh", "-c",
            "head -c 3000000 /dev/zero | tr '\\0' 'e' >&2; echo >&2; echo last >&2; exit 2"});
  EXPECT_THAT(test_status(result), HasSubstr("exit status 2: last"));
  EXPECT_LT(test_status(result).size(), 10'000u);
}

TEST_F(PipeTest, ACommandThatCannotBeStartedIsNamed) {
  const auto result = through("x", {"/no/such/command"});
  EXPECT_CODE(result, kNotFound);
  EXPECT_THAT(test_status(result), HasSubstr("/no/such/command"));
  EXPECT_CODE(through("x", {}), kInvalidArgument);
  EXPECT_CODE(through("x", {""}), kInvalidArgument);
}

TEST_F(PipeTest, ACommandThatReadsLessIsFine) {
  EXPECT_EQ(
      *through(random_bytes(5 << 20, 1) + "\n", {"sh", "-c", "head -c 1 > /dev/null; echo done"}),
      "done\n");
}

TEST_F(PipeTest, ACommandThatHangsIsKilledAtTheDeadline) {
  const auto result =
      through("x", {"sh", "-c", "sleep 1000"}, {.stall_timeout = milliseconds(200)});
  EXPECT_CODE(result, kDeadlineExceeded);
  EXPECT_THAT(test_status(result), HasSubstr("killed"));
}

TEST_F(PipeTest, ACommandThatClosesItsOutputAndHangsIsKilledToo) {
  EXPECT_CODE(through("x", {"sh", "-c", "exec >&-; exec 2>&-; sleep 1000"},
                      {.stall_timeout = milliseconds(200)}),
              kDeadlineExceeded);
}

TEST_F(PipeTest, ItIsKilledWithItsChildrenWhenTheReaderGoesAway) {
  // Prints its own number and a child's, then prints for ever: more than anybody asks for.
  auto reader = pipe_command(std::make_unique<StringReader>("x"),
                             {"sh", "-c", "sleep 1000 & echo $$ $!; exec yes"}, clock_);
  ASSERT_OK(reader);
  std::string text;
  while (text.find('\n') == std::string::npos) {
    std::array<std::byte, 1> one{};
    ASSERT_OK((*reader)->read(one));
    text += static_cast<char>(one[0]);
  }
  int command = 0;
  int child = 0;
  ASSERT_EQ(std::sscanf(text.c_str(), "%d %d", &command, &child), 2);
  EXPECT_TRUE(is_alive(command));
  reader->reset();
  EXPECT_TRUE(eventually([&] { return !is_alive(command) && !is_alive(child); }));
}

TEST_F(PipeTest, AnErrorOfTheSourceEndsIt) {
  class Broken final : public Reader {
   public:
    StatusOr<size_t> read(std::span<std::byte>) override {
      return data_loss("the source is broken");
    }
    const std::string& url() const override { return url_; }

   private:
    const std::string url_ = "test://broken";
  };
  auto reader = pipe_command(std::make_unique<Broken>(), {"cat"}, clock_);
  ASSERT_OK(reader);
  EXPECT_CODE(read_all(**reader, 100), kDataLoss);
}

TEST_F(PipeTest, AnInterruptedReadIsCancelled) {
  auto reader = pipe_command(std::make_unique<StringReader>("x"), {"sleep", "1000"}, clock_);
  ASSERT_OK(reader);
  Thread other({.name = "interrupter", .core = {}}, [&] { (*reader)->interrupt(); });
  EXPECT_CODE(read_all(**reader, 100), kCancelled);
}

}  // namespace
}  // namespace starling
