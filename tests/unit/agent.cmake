# The agent's modules. Those that need two processes share agent_pair.

set(agent_pair ${PROJECT_SOURCE_DIR}/tests/support/agent_pair.c)

foreach(module pull hold_stress region)
  baton_unit(test_${module} LIBS baton_static SOURCES ${agent_pair})
endforeach()
baton_unit(test_pull_groups LIBS baton_static)
foreach(module pull hold_stress region pull_groups)
  if(BATON_SANITIZE)
    set_property(TEST unit.test_${module} APPEND PROPERTY ENVIRONMENT
        "LSAN_OPTIONS=suppressions=${PROJECT_SOURCE_DIR}/agent/libfabric.supp"
        "TSAN_OPTIONS=suppressions=${PROJECT_SOURCE_DIR}/agent/libfabric.tsan")
  endif()
endforeach()
foreach(module hold event plan card params reactor log_stderr)
  baton_unit(test_${module} LIBS baton_static)
endforeach()
