# Lint targets (preset lint): each fails with what it found; `lint` is all.
#
#   format-check  every C file is as clang-format leaves it
#   tidy          clang-tidy, with .clang-tidy, over every C file that is built
#   cppcheck      a second analyzer
#   layers        rooms, who may include whom, doors of third-party libraries
#   headers       each header compiles alone
#   symbols       what the agent's shared library exports
#   banned        functions and words that nobody may use
#   tables        example configurations agree with the table of settings

find_program(CLANG_FORMAT NAMES clang-format-14 clang-format REQUIRED)
find_program(CLANG_TIDY NAMES clang-tidy-14 clang-tidy REQUIRED)
find_program(RUN_CLANG_TIDY NAMES run-clang-tidy-14 run-clang-tidy REQUIRED)
find_program(CPPCHECK NAMES cppcheck REQUIRED)

# cppcheck reads no system header but this one, whose macros are loops.
find_file(LINT_QUEUE_H sys/queue.h REQUIRED)

set(LINT_DIR ${PROJECT_SOURCE_DIR}/tests/lint)
set(BATON_LINT_JOBS 0 CACHE STRING "analyzers at once; 0: one per processor")
if(BATON_LINT_JOBS GREATER 0)
  set(lint_jobs ${BATON_LINT_JOBS})
else()
  cmake_host_system_information(RESULT lint_jobs QUERY NUMBER_OF_LOGICAL_CORES)
endif()

file(GLOB_RECURSE lint_sources CONFIGURE_DEPENDS
    ${PROJECT_SOURCE_DIR}/common/*.[ch] ${PROJECT_SOURCE_DIR}/proxy/*.[ch]
    ${PROJECT_SOURCE_DIR}/agent/*.[ch] ${PROJECT_SOURCE_DIR}/bench/*.[ch]
    ${PROJECT_SOURCE_DIR}/tests/*.[ch])

add_custom_target(format-check
    COMMAND ${CLANG_FORMAT} --dry-run -Werror ${lint_sources}
    WORKING_DIRECTORY ${PROJECT_SOURCE_DIR} VERBATIM)

# The regular expression keeps generated sources out.
add_custom_target(tidy
    COMMAND ${RUN_CLANG_TIDY} -quiet -j ${lint_jobs}
            -clang-tidy-binary ${CLANG_TIDY} -p ${PROJECT_BINARY_DIR}
            "^${PROJECT_SOURCE_DIR}/(common|proxy|agent|bench|tests)/"
    WORKING_DIRECTORY ${PROJECT_SOURCE_DIR} VERBATIM)

add_custom_target(cppcheck
    COMMAND ${CPPCHECK} --quiet -j ${lint_jobs} --std=c11
            --enable=warning,style,performance,portability --inline-suppr
            --suppressions-list=${LINT_DIR}/cppcheck.txt
            --error-exitcode=1 -D_GNU_SOURCE
            --include=${LINT_QUEUE_H}
            "-DBATON_VERSION=\"0\""
            -I ${PROJECT_SOURCE_DIR} -I ${PROJECT_SOURCE_DIR}/agent/include
            common proxy agent bench
    WORKING_DIRECTORY ${PROJECT_SOURCE_DIR} VERBATIM)

add_custom_target(layers
    COMMAND python3 ${LINT_DIR}/layers.py
    WORKING_DIRECTORY ${PROJECT_SOURCE_DIR} VERBATIM)

add_custom_target(banned
    COMMAND bash ${LINT_DIR}/banned.sh
    WORKING_DIRECTORY ${PROJECT_SOURCE_DIR} VERBATIM)

add_custom_target(headers
    COMMAND ${CMAKE_COMMAND} -E env CC=${CMAKE_C_COMPILER}
            bash ${LINT_DIR}/headers.sh
    WORKING_DIRECTORY ${PROJECT_SOURCE_DIR} VERBATIM)

set(lint_all format-check layers headers banned cppcheck tidy)

if(TARGET baton)
  add_custom_target(symbols
      COMMAND bash ${LINT_DIR}/symbols.sh $<TARGET_FILE:baton>
      DEPENDS baton VERBATIM)
  list(APPEND lint_all symbols)
endif()
if(TARGET baton-proxy)
  add_custom_target(tables
      COMMAND bash ${LINT_DIR}/tables.sh $<TARGET_FILE:baton-proxy>
      DEPENDS baton-proxy VERBATIM)
  list(APPEND lint_all tables)
endif()

add_custom_target(lint DEPENDS ${lint_all})
