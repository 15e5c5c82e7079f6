# The agent's modules. Those that need two processes share agent_pair.

set(agent_pair ${PROJECT_SOURCE_DIR}/tests/support/agent_pair.c)

# A host that was compiled with the header of version 0.1 runs with today's
# library; its header and its source are data that never changes.
add_executable(old_host data/0.1/pull_example.c)
target_include_directories(old_host BEFORE PRIVATE data/0.1/include)
target_link_libraries(old_host PRIVATE baton_flags baton)
add_test(NAME unit.old_host COMMAND old_host)
set_tests_properties(unit.old_host PROPERTIES LABELS unit TIMEOUT 60)

foreach(module pull hold_stress region)
  baton_unit(test_${module} LIBS baton_static SOURCES ${agent_pair})
endforeach()
baton_unit(test_pull_groups LIBS baton_static)
foreach(module hold tomb event plan card wire params reactor log_stderr sized)
  baton_unit(test_${module} LIBS baton_static)
endforeach()
foreach(module old_host test_pull test_hold_stress test_region test_sized
        test_pull_groups)
  if(BATON_SANITIZE)
    set_property(TEST unit.${module} APPEND PROPERTY ENVIRONMENT
        "LSAN_OPTIONS=suppressions=${PROJECT_SOURCE_DIR}/agent/libfabric.supp"
        "TSAN_OPTIONS=suppressions=${PROJECT_SOURCE_DIR}/agent/libfabric.tsan")
  endif()
endforeach()
